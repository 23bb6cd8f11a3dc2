//! Why a claim's addresses do not come: an ADD that has waited for them in vain names who has them.

use std::time::Duration;

use api::IpamClaimStatus;
use cni::{CniError, Code};

use crate::Agent;

/// An ADD that has failed anyhow waits no longer than this for the words.
const ANSWER: Duration = Duration::from_secs(2);

impl Agent {
    /// The error of an ADD, with what the operator tells of the claim that it has waited for.
    pub(crate) fn with_holder(&self, e: CniError) -> CniError {
        let Some((namespace, name)) = unclaimed(&e) else { return e };
        let asked = async { tokio::time::timeout(ANSWER, self.cluster.fetch_claim(namespace, name)).await };
        let why = match self.runtime.block_on(asked) {
            Ok(Ok(Some(status))) => told(&status),
            Ok(Ok(None)) => format!("there is no IPAMClaim {namespace}/{name}: create it, or name another one in the pod"),
            // It says where to look, which is all that is known.
            Ok(Err(_)) | Err(_) => return e,
        };
        if why.is_empty() {
            return e;
        }
        let details = if e.details.is_empty() { why } else { format!("{}; {why}", e.details) };
        e.with_details(details)
    }
}

/// The claim whose addresses are not on this node, by the error that says so ([`pool::Refused::Unclaimed`]).
fn unclaimed(e: &CniError) -> Option<(&str, &str)> {
    let (_, behind) = e.msg.split_once("claim ").filter(|_| e.code == Code::TRY_AGAIN_LATER)?;
    behind.split_once(" has no ")?.0.split_once('/')
}

/// Who has its addresses, and what its conditions say.
fn told(status: &IpamClaimStatus) -> String {
    let owner = status.owner_pod.as_ref().map(|pod| format!("pod {} has them", pod.name));
    let said = status.conditions.iter().filter(|c| !c.message.is_empty()).map(|c| c.message.clone());
    owner.into_iter().chain(said).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use api::{Condition, OwnerPod};

    use super::*;

    #[test]
    fn the_claim_is_the_one_that_the_error_names() {
        let refused = pool::Refused::Unclaimed { pool: "p".to_owned(), family: pool::Family::V4, claim: "db/vip".to_owned() };
        let error = CniError::new(Code::TRY_AGAIN_LATER, format!("network \"n\": {refused}"));
        assert_eq!(unclaimed(&error), Some(("db", "vip")), "{error}");
        assert_eq!(unclaimed(&CniError::new(Code::TRY_AGAIN_LATER, "no claim, no address")), None);
        assert_eq!(unclaimed(&CniError::new(Code::IO, refused.to_string())), None);
    }

    #[test]
    fn who_has_them_comes_first() {
        let condition = |message: &str| Condition { message: message.to_owned(), ..Condition::default() };
        let owner_pod = Some(OwnerPod { name: "first".to_owned() });
        let status = IpamClaimStatus {
            owner_pod,
            conditions: vec![condition(""), condition("pods second on b wait")],
            ..IpamClaimStatus::default()
        };
        assert_eq!(told(&status), "pod first has them; pods second on b wait");
        assert_eq!(told(&IpamClaimStatus::default()), "");
    }
}
