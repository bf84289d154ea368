//! Promises about size: what the daemon must serve without its work growing with the square.

use crate::harness::{DEVICE, Harness, device_message};
use std::time::Duration;
use turnus_core::{
    Core, Input, MemberId, MemberMessage as Say, Output, RequestId, Settings, TenantId, ToMember,
};

const MANY: u64 = 5_000;

/// Processor time of this thread: what the work costs, whatever else the machine does.
fn processor_time() -> Duration {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux with scheduler statistics");
    let nanoseconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number first"))
}

fn feed(core: &mut Core, input: Input) -> Vec<Output> {
    let mut outputs = Vec::new();
    core.step(Duration::ZERO, input, &mut outputs);
    outputs
}

#[test]
fn five_thousand_tenants_register_allocate_and_queue_in_a_second() {
    let start = processor_time();
    let mut core = Core::new(Settings { host_pool_bytes: 1 << 50, ..Settings::default() });
    let mut granted = 0;
    for number in 0..MANY {
        let member = MemberId(number);
        feed(
            &mut core,
            Input::MemberConnected {
                member,
                pid: number as u32,
                tenant: TenantId(number),
                tenant_name: format!("t{number}"),
                memory_limit_bytes: None,
                resumes: None,
            },
        );
        for message in [
            device_message(DEVICE, 0, 0, None),
            Say::Ready,
            Say::Reserve { request: RequestId(1), device: DEVICE, bytes: 1 },
            Say::TurnRequested,
        ] {
            for output in feed(&mut core, Input::Message { member, message }) {
                granted +=
                    u64::from(matches!(output, Output::Send { message: ToMember::TurnGranted { .. }, .. }));
            }
        }
    }
    let took = processor_time() - start;
    println!("took {took:?}");
    assert_eq!(granted, 1);
    assert_eq!(core.status(Duration::ZERO).tenants.len(), MANY as usize);
    assert!(took < Duration::from_secs(1), "took {took:?}");
}

#[test]
fn five_thousand_members_of_one_tenant_share_a_turn_in_a_second() {
    let start = processor_time();
    let mut harness = Harness::new(Settings::default());
    for number in 0..MANY {
        let member = MemberId(number);
        let tenant_name = "crowd".to_string();
        let (tenant, pid) = (TenantId(1), number as u32);
        let connected = Input::MemberConnected {
            member,
            pid,
            tenant,
            tenant_name,
            memory_limit_bytes: None,
            resumes: None,
        };
        feed(&mut harness.core, connected);
        for message in [device_message(DEVICE, 0, 0, None), Say::Ready] {
            feed(&mut harness.core, Input::Message { member, message });
        }
    }
    let outputs =
        feed(&mut harness.core, Input::Message { member: MemberId(0), message: Say::TurnRequested });
    let told = outputs.iter().filter(|output| matches!(output, Output::Send { .. })).count();
    let took = processor_time() - start;
    assert_eq!(told as u64, MANY);
    assert!(took < Duration::from_secs(1), "took {took:?}");
}
