//! Which tenant a process belongs to: by the capability of a `turnus run`, else it is its own.
//!
//! Also keeps the gate page of each tenant. Names are only shown; two tenants may have the same.

use crate::daemon::identity::{self, Peer, Process};
use crate::daemon::state_file::{MemberRecord, RunRecord};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use turnus_core::TenantId;
use turnus_gate::page::GatePageWriter;
use turnus_protocol::{Token, name};

/// Most `turnus run` that are remembered; beyond it those go whose processes have ended.
const RUNS_MAX: usize = 4096;
/// Most of them of one process: each `turnus run` that becomes another adds one.
const RUNS_OF_PROCESS_MAX: usize = 8;
/// Looking for ended processes takes long, so it is not done more often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What the core needs to know of a new member's tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Its number.
    pub tenant: TenantId,
    /// Its name.
    pub name: String,
    /// Its limit.
    pub memory_limit_bytes: Option<u64>,
}

/// All tenants of this daemon's life.
#[derive(Debug, Default)]
pub struct Tenants {
    last: u64,
    runs: BTreeMap<Token, RunRecord>,
    pages: BTreeMap<TenantId, GatePageWriter>,
    looked: Option<Instant>,
}

impl Tenants {
    /// With the runs that a former daemon knew; numbers of former tenants are not given again.
    pub fn new(runs: Vec<RunRecord>, members: &[MemberRecord]) -> Tenants {
        let former = runs.iter().map(|run| run.tenant).chain(members.iter().map(|member| member.tenant));
        let last = former.max().unwrap_or(0);
        let runs = runs.into_iter().filter_map(|run| Some((Token::from_hex(&run.token)?, run))).collect();
        Tenants { last, runs, pages: BTreeMap::new(), looked: None }
    }

    /// A tenant for a `turnus run`, with a fresh capability.
    pub fn register_run(
        &mut self,
        peer: &Peer,
        name: &str,
        memory_limit_bytes: Option<u64>,
    ) -> io::Result<(Token, String)> {
        self.make_place(peer.process)?;
        let mut bytes = [0u8; 16];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        if filled != bytes.len() {
            return Err(io::Error::other("the kernel gave too few random bytes"));
        }
        let token = Token(bytes);
        let name = name::clean(name);
        self.last += 1;
        let run = RunRecord {
            token: token.to_hex(),
            uid: peer.uid,
            owner: peer.process,
            tenant: self.last,
            name: name.clone(),
            memory_limit_bytes,
        };
        self.runs.insert(token, run);
        Ok((token, name))
    }

    /// Forgets runs, if there are too many of this process or of all.
    fn make_place(&mut self, owner: Process) -> io::Result<()> {
        let of_owner = self.runs.iter().filter(|(_, run)| run.owner == owner);
        let oldest = of_owner.clone().min_by_key(|(_, run)| run.tenant).map(|(token, _)| *token);
        if of_owner.count() >= RUNS_OF_PROCESS_MAX
            && let Some(oldest) = oldest
        {
            self.runs.remove(&oldest);
        }
        if self.runs.len() < RUNS_MAX {
            return Ok(());
        }
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN) {
            self.looked = Some(Instant::now());
            let pages = &self.pages;
            self.runs
                .retain(|_, run| identity::is_alive(run.owner) || pages.contains_key(&TenantId(run.tenant)));
        }
        if self.runs.len() < RUNS_MAX { Ok(()) } else { Err(io::Error::other("too many programs run")) }
    }

    /// Whether a program that was started by `turnus run` still runs; it may need a device later.
    pub fn has_live_run(&self) -> bool {
        self.runs.values().any(|run| identity::is_alive(run.owner))
    }

    /// The tenant of a token's holder. `None`: unknown token, or another user's.
    pub fn by_token(&self, token: Token, uid: u32) -> Option<Membership> {
        let run = self.runs.get(&token)?;
        (run.uid == uid).then(|| Membership {
            tenant: TenantId(run.tenant),
            name: run.name.clone(),
            memory_limit_bytes: run.memory_limit_bytes,
        })
    }

    /// A tenant of its own for a lone process.
    pub fn alone(&mut self, pid: u32) -> Membership {
        self.last += 1;
        let name = format!("{}[{pid}]", identity::program_name(pid));
        Membership { tenant: TenantId(self.last), name, memory_limit_bytes: None }
    }

    /// The tenant of a member that comes back.
    pub fn of_record(&self, record: &MemberRecord) -> Membership {
        Membership {
            tenant: TenantId(record.tenant),
            name: record.tenant_name.clone(),
            memory_limit_bytes: record.memory_limit_bytes,
        }
    }

    /// The gate page of a tenant, made with its first member.
    pub fn page(&mut self, tenant: TenantId) -> io::Result<&GatePageWriter> {
        use std::collections::btree_map::Entry;
        Ok(match self.pages.entry(tenant) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(empty) => empty.insert(GatePageWriter::create()?),
        })
    }

    /// The page, if the tenant has members.
    pub fn existing_page(&self, tenant: TenantId) -> Option<&GatePageWriter> {
        self.pages.get(&tenant)
    }

    /// The last member has gone.
    pub fn forget(&mut self, tenant: TenantId) {
        self.pages.remove(&tenant);
    }

    /// For the state file.
    pub fn runs(&self) -> Vec<RunRecord> {
        self.runs.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_cannot_fill_the_list_of_runs() {
        let (socket, _other) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .expect("pair");
        let peer = Peer::of(&socket).expect("ourselves");
        let mut tenants = Tenants::default();
        let tokens: Vec<Token> =
            (0..100).map(|_| tenants.register_run(&peer, "x", None).expect("token").0).collect();
        assert_eq!(tenants.runs().len(), RUNS_OF_PROCESS_MAX);
        assert!(tenants.has_live_run());
        let known = |token: &Token| tenants.by_token(*token, peer.uid).is_some();
        assert!(known(&tokens[99]) && !known(&tokens[0]), "the newest must stay");
        assert!(tenants.by_token(tokens[99], peer.uid + 1).is_none(), "another user's token");
    }
}
