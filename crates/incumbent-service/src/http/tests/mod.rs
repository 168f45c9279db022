//! The API as clients see it: real nodes, real sockets, requests written by hand.

mod bounds;
mod documents;
mod house;
mod refusals;
mod routes;
mod schema;
mod stories;
mod streams;
