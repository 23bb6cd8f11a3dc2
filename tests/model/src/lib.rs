//! Explores every order in which operators, agents and crashes can meet, with the very code that decides.
