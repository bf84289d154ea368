//! Profiler control: CUDA driver API, "Profiler Control".
//!
//! Start and stop are requests to a profiler; with none attached a driver has nothing to do.

use super::entry;
use crate::context::current;

entry! {
    fn cuProfilerStart() {
        current::get()?;
        Ok(())
    }

    fn cuProfilerStop() {
        current::get()?;
        Ok(())
    }
}
