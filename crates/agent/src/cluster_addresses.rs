//! Addresses of the whole cluster that no pod gets from a definition: those of Services, and those of the API server; and ports of every
//! node that Services have.
//!
//! ```text
//!   setting serviceCIDRs -----------------.
//!   ServiceCIDR objects, Kubernetes 1.33 --+--> ranges ---.
//!   Services: load balancers, external ------> services ---+--> ClusterOwn, of ThisNode: what definitions are held against
//!   EndpointSlice default/kubernetes ------.              |
//!   server of the kubeconfig ---------------+--> servers -'
//!   KUBERNETES_SERVICE_HOST ----------------'
//! ```
//!
//! Until all lists have come, nothing is known of what they hold: an ADD that selects networks waits, and fails if they do not come, however
//! long the API server takes. Pods that select none are attached meanwhile. So it is, too, where the agent's ClusterRole lacks a rule: what is
//! protected does not depend on that, and the rule may come any time. Only a server that has no ServiceCIDR objects at all, as before
//! Kubernetes 1.33, will not have them later either: then the agent goes on without, and says what is not protected.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cluster::{ApiEndpoints, ApiError, Cluster, Listed, ServiceRanges, Services};
use cni::{CniError, Code};
use ipnet::IpNet;

use crate::log::Line;
use crate::provided::PodNetwork;
use crate::shares::Aside;
use crate::{Agent, Settings};

/// How long after the agent's start an answer that does not come is waited for: after that the agent serves the pods that need none, and
/// refuses the others at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an ADD waits for it; then its runtime tries again.
const OF_A_CALL: Duration = Duration::from_secs(10);
/// What is not protected where no range of Services is known, and what to do then.
pub(crate) const NO_RANGE: &str = "addresses of Services are not protected from definitions";
pub(crate) const NO_RANGE_NEXT: &str = "list their ranges in the setting serviceCIDRs (kube-apiserver's --service-cluster-ip-range)";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// What is known of the cluster's addresses.
pub(crate) struct ClusterAddresses {
    since: Instant,
    configured: Vec<IpNet>,
    connected: Vec<IpAddr>,
    /// None where there is no cluster.
    followed: Option<Followed>,
}

/// The lists that are followed.
struct Followed {
    ranges: ServiceRanges,
    services: Services,
    endpoints: ApiEndpoints,
}

/// What is the cluster's own, as far as it is known.
#[derive(Default)]
pub(crate) struct ClusterOwn<'a> {
    /// The ranges of Services.
    pub(crate) ranges: Vec<IpNet>,
    /// The addresses of the API server.
    pub(crate) servers: Vec<IpAddr>,
    /// Where Services are reached beside their ranges.
    pub(crate) services: Option<&'a Services>,
    /// The network of its pods, where agents provide it.
    pub(crate) pods: Option<&'a dyn PodNetwork>,
}

/// What came of the lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) ranges: Came,
    pub(crate) services: Came,
    pub(crate) servers: Came,
}

/// What came of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    /// It is here.
    Listed,
    /// It may still come.
    Pending(String),
    /// It will not come until somebody changes the cluster.
    Never(String),
}

// === impl Came ===

impl Came {
    /// `may_lack`: whether a server may be without the kind.
    fn of(listed: &Listed, may_lack: bool) -> Self {
        let error = listed.failing.as_ref().map(|failing| &failing.error);
        let why = || error.map_or_else(|| "the API server has not answered yet".to_owned(), ToString::to_string);
        match error {
            _ if listed.complete => Came::Listed,
            // Whatever else the server refuses, it may accept once a token or a ClusterRole is mended.
            Some(ApiError::NotServed { .. }) if may_lack => Came::Never(why()),
            _ => Came::Pending(why()),
        }
    }
}

// === impl Lists ===

impl Lists {
    /// What is not known yet, and why, if it may still come.
    fn pending(&self) -> Option<String> {
        let Lists { ranges, services, servers } = self;
        let lists =
            [("the ranges of Services", ranges), ("the addresses of Services", services), ("the addresses of the API server", servers)];
        lists.into_iter().find_map(|(what, came)| match came {
            Came::Pending(why) => Some(format!("{what} are not known yet: {why}")),
            Came::Listed | Came::Never(_) => None,
        })
    }

    /// The same of what was waited for long enough.
    fn late(&self) -> Option<String> {
        Some(format!("{}; until then, pods that select networks of definitions fail", self.pending()?))
    }
}

// === impl ClusterAddresses ===

impl ClusterAddresses {
    /// Must be called within a tokio runtime.
    pub(crate) fn follow(settings: &Settings, cluster: &Cluster) -> Self {
        ClusterAddresses {
            since: Instant::now(),
            configured: settings.service_ranges.clone(),
            connected: connected(cluster.server_ip()),
            followed: settings.kubelet.then(|| Followed {
                ranges: cluster.follow_service_ranges(),
                services: cluster.follow_services(),
                endpoints: cluster.follow_api_endpoints(),
            }),
        }
    }

    /// What no pod may take.
    pub(crate) fn own(&self) -> ClusterOwn<'_> {
        let services = self.followed.as_ref().map(|followed| &followed.services);
        ClusterOwn { ranges: self.ranges(), servers: self.servers(), services, pods: None }
    }

    /// The ranges of Services.
    pub(crate) fn ranges(&self) -> Vec<IpNet> {
        let followed = self.followed.as_ref().map(|followed| followed.ranges.all()).unwrap_or_default();
        self.configured.iter().copied().chain(followed.iter().filter_map(|range| range.parse().ok())).collect()
    }

    /// The addresses of the API server.
    pub(crate) fn servers(&self) -> Vec<IpAddr> {
        let followed = self.followed.as_ref().map(|followed| followed.endpoints.all()).unwrap_or_default();
        self.connected.iter().copied().chain(followed.iter().filter_map(|address| address.parse().ok())).collect()
    }

    fn came(&self) -> Option<Lists> {
        let Followed { ranges, services, endpoints } = self.followed.as_ref()?;
        let ranges = Came::of(&ranges.listed(), true);
        Some(Lists { ranges, services: Came::of(&services.listed(), false), servers: Came::of(&endpoints.listed(), false) })
    }

    /// Whether the agent has just begun: the lists are on their way.
    fn is_early(&self) -> bool {
        self.since.elapsed() <= PATIENCE
    }

    /// What is not known yet, and why, if the agent is to wait for it before it serves anybody.
    pub(crate) fn awaited(&self) -> Option<String> {
        if self.is_early() { self.pending() } else { None }
    }

    /// What is not known yet, and why, if it may still come.
    pub(crate) fn pending(&self) -> Option<String> {
        self.came()?.pending()
    }

    /// What is not protected, why, and what would mend it.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let of = |lists: Lists| {
            let late = if self.is_early() { None } else { lists.late() };
            late.into_iter().chain(gaps(&lists, self.ranges().is_empty())).collect()
        };
        self.came().map(of).unwrap_or_default()
    }

    /// Until when a call waits. Later nobody waits: the threads that serve calls are needed for pods that select nothing.
    fn patience(&self, by: Instant) -> Instant {
        by.min(Instant::now() + if self.is_early() { OF_A_CALL } else { Duration::ZERO })
    }

    /// Waits until nothing is pending; what is, if it is not over by then.
    fn wait(&self, by: Instant) -> Result<(), String> {
        while let Some(why) = self.pending() {
            if Instant::now() >= by {
                return Err(why);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Where the API server is asked, and its Service's address, which the kubelet tells every container.
pub(crate) fn connected(server: Option<IpAddr>) -> Vec<IpAddr> {
    let of_service = std::env::var("KUBERNETES_SERVICE_HOST").ok().and_then(|host| host.parse().ok());
    server.into_iter().chain(of_service).collect()
}

/// The same in words, of what came of the lists.
pub(crate) fn gaps(lists: &Lists, has_no_range: bool) -> Vec<String> {
    let of_ranges = match &lists.ranges {
        _ if !has_no_range => None,
        Came::Never(why) => Some(format!("{NO_RANGE}: {NO_RANGE_NEXT}; {why}")),
        Came::Listed => Some(format!("{NO_RANGE}: no ServiceCIDR has any; {NO_RANGE_NEXT}")),
        Came::Pending(_) => None,
    };
    let of = |what: &str, came: &Came| match came {
        Came::Never(why) => Some(format!("{what} are not protected from definitions: {why}")),
        Came::Listed | Came::Pending(_) => None,
    };
    let of_services = of("addresses of load balancers, external addresses and NodePorts of Services", &lists.services);
    let of_servers = of("addresses of the API server", &lists.servers);
    [of_ranges, of_services, of_servers].into_iter().flatten().collect()
}

impl Agent {
    /// Waits until it is known what a pod's networks are held against. Others are served meanwhile.
    pub(crate) fn knows_cluster_addresses(&self, by: Instant) -> Result<(), CniError> {
        let is_planned = |by| self.provided.as_ref().map_or(Ok(()), |provided| provided.wait_for_plan(by));
        let known = |by| self.cluster_addresses.wait(by).and_then(|()| is_planned(by));
        known(Instant::now())
            .or_else(|_| {
                let mut aside = Aside::new(self.waits_for_others.get());
                aside.step();
                known(self.cluster_addresses.patience(by))
            })
            .map_err(|why| CniError::new(Code::TRY_AGAIN_LATER, format!("{why}; until then no pod gets a network of a definition")))
    }

    /// Says once, when it is known or was waited for long enough, what is not protected.
    pub(crate) async fn warn_of_gaps(&self) {
        while self.cluster_addresses.awaited().is_some() {
            tokio::time::sleep(LOOK).await;
        }
        for gap in self.cluster_addresses.gaps() {
            Line::warn("protection").with("what", gap).end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A protection must not end because the API server is slow.
    #[test]
    fn what_is_late_is_never_taken_for_nothing() {
        let failing = |error| Listed { complete: false, failing: Some(cluster::Failing { since: std::time::SystemTime::now(), error }) };
        let asked = cluster::RequestedObject { group: "", resource: "services", verb: "list", of: "".into() };
        let slow = ApiError::Unreachable { asked, server: "https://192.0.2.1".into(), cause: "timed out".to_owned() };
        let services = Came::of(&failing(slow), false);
        assert!(matches!(services, Came::Pending(_)), "{services:?}");
        let lists = Lists { ranges: Came::Listed, services, servers: Came::Listed };
        let said = lists.late().unwrap();
        assert!(said.starts_with("the addresses of Services are not known yet: ") && said.contains("timed out"), "{said}");
        assert_eq!(gaps(&lists, false), [""; 0], "they are protected: nobody gets one");
    }

    /// A rule that is missing in the ClusterRole must not turn a protection off, which nobody would notice.
    #[test]
    fn what_is_forbidden_is_waited_for() {
        let asked = || cluster::RequestedObject { group: "networking.k8s.io", resource: "servicecidrs", verb: "list", of: "".into() };
        let (server, said): (Arc<str>, _) = ("https://192.0.2.1".into(), "forbidden".to_owned());
        let failing = |error| Listed { complete: false, failing: Some(cluster::Failing { since: std::time::SystemTime::now(), error }) };
        let forbidden = failing(ApiError::Forbidden { asked: asked(), server: Arc::clone(&server), said: said.clone() });
        for may_lack in [true, false] {
            assert!(matches!(Came::of(&forbidden, may_lack), Came::Pending(why) if why.contains("ClusterRole")));
        }
        let not_served = failing(ApiError::NotServed { asked: asked(), server, said });
        assert!(matches!(Came::of(&not_served, true), Came::Never(_)), "Kubernetes before 1.33");
        assert!(matches!(Came::of(&not_served, false), Came::Pending(_)), "every API server has Services");
    }

    #[test]
    fn what_does_not_come_is_told_with_the_setting_that_is_missing() {
        let waits = Came::of(&Listed::default(), true);
        assert_eq!(waits, Came::Pending("the API server has not answered yet".to_owned()));
        assert_eq!(Came::of(&Listed { complete: true, failing: None }, true), Came::Listed);
        let never = Came::Never("not served".to_owned());
        let gaps = |ranges: &Came, has_no_range, services: &Came, servers: &Came| {
            gaps(&Lists { ranges: ranges.clone(), services: services.clone(), servers: servers.clone() }, has_no_range)
        };
        let here = Came::Listed;
        let told = gaps(&never, true, &here, &here);
        assert!(told.len() == 1 && told[0].contains("the setting serviceCIDRs"), "{told:?}");
        assert_eq!(gaps(&never, false, &here, &here), [""; 0], "they are in the settings");
        assert_eq!(gaps(&here, true, &here, &never).len(), 2);
        let told = gaps(&here, false, &never, &here);
        assert!(told.len() == 1 && told[0].contains("addresses of load balancers"), "{told:?}");
        assert_eq!(gaps(&waits, true, &waits, &waits), [""; 0]);
    }
}
