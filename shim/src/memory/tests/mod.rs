//! Tests of the memory against a strict stand-in for the driver and the daemon.
