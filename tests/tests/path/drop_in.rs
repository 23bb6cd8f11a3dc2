//! An agent comes to a node that has pods already, and goes again.
