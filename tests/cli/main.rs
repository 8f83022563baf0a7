//! Transcripts of the command: exit status, standard output and standard error of every command and
//! of every kind of failure, beside the call that makes them.

mod checkpoints;
mod convert;
mod export;
mod fit;
mod inspect;
mod plan;
mod plan_file;
mod register;
mod schema;
mod streams;
mod support;
mod usage;
mod verify;
