//! The server over real sockets of this machine, with a model whose answers are functions of their prompts.

mod client;
mod crowd;
mod limits;
mod routes;
mod toy;
