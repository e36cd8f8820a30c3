//! The accounts' rule, as user space decides by it.

use forebay_kernel::{Accounts, RingAccount, RingRule};
use forebay_policy::{Admission, Occupancy, Th, Threshold};

/// How full the pool is, for an account that holds `used` frames.
pub(crate) fn occupancy(accounts: &Accounts, used: u64) -> Occupancy {
    Occupancy {
        used,
        pool_used: accounts.pool_used(),
        pool_size: accounts.pool_size(),
        headroom: accounts.headroom(),
        first_burst: accounts.first_burst(),
    }
}

/// Whether a packet that takes `frames` frames has room in the account; packet path.
pub(crate) fn admits(account: &RingAccount, frames: u64) -> bool {
    let RingRule { depth, reserve, th, limit } = account.rule();
    let threshold = u8::try_from(th).ok().and_then(Th::new);
    let threshold = threshold.map_or(Threshold::Static(limit), Threshold::Dynamic);
    let admission = Admission { threshold, reserve, depth };
    admission.admits(occupancy(account.all(), account.used()), frames)
}
