//! Tests of execution by behaviour.
