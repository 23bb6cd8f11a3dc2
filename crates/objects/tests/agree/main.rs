//! That the store answers as a real API server does: one suite, run against both, whose conversations are compared word by word, less what
//! differs from one run to the next.
//!
//! Needs root and the peers (`make peers`) for the real one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "tests")]

mod deletes;
mod patches;
mod reads;
mod resources;
mod talk;
mod watches;
mod writes;

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use kube::{Client, Config, config::Kubeconfig};
use netloom_objects::Store;
use talk::Talk;

macro_rules! cases {
    ($($module:ident: $($case:ident)*;)*) => {
        /// Every case, against the store alone.
        mod store {
            $($(
                #[tokio::test]
                async fn $case() {
                    let store = super::Store::new();
                    let mut talk = super::Talk::begin(store.client(), stringify!($case)).await;
                    super::$module::$case(&mut talk).await;
                    assert!(talk.said.len() > 1, "nothing was said");
                }
            )*)*
        }

        async fn differences(real: &Client) -> Vec<String> {
            let mut differences = Vec::new();
            $($(
                let store = Store::new();
                let mut ours = Talk::begin(store.client(), stringify!($case)).await;
                $module::$case(&mut ours).await;
                let mut theirs = Talk::begin(real.clone(), stringify!($case)).await;
                // A case that fails is one difference more, and the others are still told.
                if AssertUnwindSafe($module::$case(&mut theirs)).catch_unwind().await.is_err() {
                    differences.push(format!("{} fails on the API server", stringify!($case)));
                }
                differences.extend(compare(stringify!($case), &ours, &theirs));
            )*)*
            differences
        }
    };
}

cases! {
    writes: create names kinds places update unconditional generations dry_run subresources;
    patches: merge_patch strategic_patch json_patch apply patch_preconditions patch_of_status patch_of_a_nodes_status;
    deletes: delete delete_preconditions finalizers pods_are_marked collections namespaces_end;
    reads: lists pages selectors versions_of_lists metadata_only;
    watches: events_in_order from_a_version selected_events initial_events too_old;
    resources: definitions status_of_custom_resources events_in_two_groups leases claims_and_slices binding;
}

fn compare(case: &str, ours: &Talk, theirs: &Talk) -> Vec<String> {
    let longest = ours.said.len().max(theirs.said.len());
    let differs = |place: &usize| ours.said.get(*place) != theirs.said.get(*place);
    let pretty = |talk: &Talk, place: usize| talk.said.get(place).map_or_else(|| "nothing".to_owned(), |said| format!("{said:#}"));
    (0..longest)
        .filter(differs)
        .map(|place| format!("{case}, {place}:\n  store: {}\n  API server: {}", pretty(ours, place), pretty(theirs, place)))
        .collect()
}

#[tokio::test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
async fn the_store_answers_as_the_api_server_does() {
    let dir = std::env::temp_dir().join(format!("netloom-agree-{}", std::process::id()));
    let plane = tokio::task::spawn_blocking(move || testbed::ControlPlane::start(dir)).await.unwrap().unwrap();
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await.unwrap();
    let differences = differences(&Client::try_from(config).unwrap()).await;
    drop(plane);
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}
