//! Medians and percentiles of measured samples. No averages: one interrupted sample would move them.

/// Samples of one quantity, sorted.
#[derive(Debug, Clone)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Sorts; panics without samples, since a bench that measured nothing must not print.
    pub fn new(mut values: Vec<f64>) -> Samples {
        assert!(!values.is_empty(), "nothing was measured");
        values.sort_by(f64::total_cmp);
        Samples(values)
    }

    /// The value below which this share (0 to 1) of the samples lies.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len() - 1;
        self.0[(last as f64 * share).round() as usize]
    }

    /// Half are below, half above.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Processor, cores and kernel, for the table's last line.
pub fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1))
        .unwrap_or("unknown CPU");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_in_order() {
        let samples = Samples::new(vec![5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((samples.median(), samples.quantile(0.0), samples.quantile(1.0)), (3.0, 1.0, 5.0));
    }
}
