//! The command line, whole and as functions.
