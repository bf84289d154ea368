//! The pump by itself: both directions at once would be two pumps, so one test for each way.

use super::fake_driver::{FakeDriver, GRANULE_BYTES};
use crate::memory::driver::{Context, Driver as _};
use crate::memory::lane::{Direction, Mover, Task, pump};
use std::ptr::NonNull;
use turnus_bindings::CUerror;

struct Script {
    tasks: Vec<Task<u32>>,
    done: Vec<u32>,
    given_up: Vec<u32>,
}

impl Mover<u32> for Script {
    fn next(&mut self) -> Option<Task<u32>> {
        self.tasks.pop()
    }

    fn done(&mut self, task: Task<u32>) {
        self.done.push(task.place);
    }

    fn give_up(&mut self, task: Task<u32>) {
        self.given_up.push(task.place);
    }
}

fn mapped(driver: &FakeDriver, bytes: u64) -> u64 {
    let address = driver.reserve(bytes, 0).expect("works");
    let handle = driver.create(0, bytes).expect("works");
    driver.map(address, bytes, handle).expect("works");
    driver.set_access(0, address, bytes).expect("works");
    address
}

fn script(driver: &FakeDriver, host: &mut [Vec<u8>]) -> Script {
    let task = |(place, host): (usize, &mut Vec<u8>)| Task {
        place: place as u32,
        address: mapped(driver, host.len() as u64),
        host: NonNull::new(host.as_mut_ptr()).expect("a vector is somewhere"),
        bytes: host.len() as u64,
    };
    let mut tasks: Vec<Task<u32>> = host.iter_mut().enumerate().map(task).collect();
    tasks.reverse();
    Script { tasks, done: Vec::new(), given_up: Vec::new() }
}

fn host() -> Vec<Vec<u8>> {
    let filled = |index: u8| vec![index + 1; (GRANULE_BYTES * (1 + u64::from(index) % 3)) as usize];
    (0..7).map(filled).collect()
}

#[test]
fn bytes_go_in_and_come_out_again_in_pieces_of_any_size() {
    for slot_bytes in [1000, 4096, 5000, 1 << 20] {
        let driver = FakeDriver::new(16 << 20);
        let lane = driver.open_lane(Context(1), 3, slot_bytes).expect("works");
        let mut bytes = host();
        let mut script = script(&driver, &mut bytes);
        let tasks = script.tasks.clone();
        pump(&driver, &lane, Direction::In, &mut script).expect("works");
        assert_eq!((script.done, script.given_up), ((0..7).collect(), vec![]));
        bytes.iter_mut().for_each(|host| host.fill(0));
        let mut back = Script { tasks, done: Vec::new(), given_up: Vec::new() };
        pump(&driver, &lane, Direction::Out, &mut back).expect("works");
        assert_eq!(back.done, (0..7).collect::<Vec<_>>());
        assert_eq!(bytes, host());
        driver.close_lane(lane);
    }
}

#[test]
fn after_an_error_every_begun_task_is_done_or_given_up_and_nothing_is_under_way() {
    for direction in [Direction::In, Direction::Out] {
        for number in 0.. {
            let driver = FakeDriver::new(16 << 20);
            let lane = driver.open_lane(Context(1), 3, 3000).expect("works");
            let mut bytes = host();
            let mut script = script(&driver, &mut bytes);
            driver.fail_at(driver.calls() + 1 + number, CUerror::UNKNOWN);
            let result = pump(&driver, &lane, direction, &mut script);
            let mut seen: Vec<u32> = script.done.iter().chain(&script.given_up).copied().collect();
            seen.sort_unstable();
            let begun = 7 - script.tasks.len() as u32;
            assert_eq!(seen, (0..begun).collect::<Vec<_>>(), "call {number}");
            // Panics if a copy is under way.
            driver.close_lane(lane);
            if driver.failed().is_none() {
                assert_eq!((result, script.done.len()), (Ok(()), 7));
                break;
            }
            assert_eq!(result, Err(CUerror::UNKNOWN));
        }
    }
}
