//! What a person sees, from answers as the agent gives them.
