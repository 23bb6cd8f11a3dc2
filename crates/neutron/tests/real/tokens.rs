//! Tokens of a real Keystone: got, kept, renewed before they end, got anew where Neutron does not take one.

use std::time::{Duration, Instant};

use netloom_neutron::{Error, KeystoneError, Neutron, PortFilter};
use openstack::{Auth, Domain, Project, Scope, User};
use serde_json::{Value, json};
use testbed::openstack::Keystone;

use crate::proxy::{Proxy, answer};
use crate::scene::{LIMITS, cloud, id, unique};

/// For how long tokens are good, in seconds: they are renewed after three quarters of it.
const LIFE: u32 = 20;

fn password(password: &str) -> Auth {
    let domain = || Domain::Name("Default".to_owned());
    let (user, scope) = (User::Name("admin".to_owned(), domain()), Scope::Project(Project::Name("admin".to_owned(), domain())));
    Auth::Password { user, password: password.into(), scope }
}

#[tokio::test]
#[ignore = "needs Keystone and Neutron: cargo xtask test neutron"]
async fn a_token_is_kept_and_renewed_and_an_application_credential_gets_one() {
    let keystone = Keystone::named(&unique("keystone"), LIFE).unwrap();
    let server = testbed::openstack::Neutron::named(&unique("neutron"), Some(&keystone)).unwrap();
    let (before_keystone, before_neutron) = (Proxy::before(&keystone.url(), Duration::ZERO), Proxy::before(&server.url(), Duration::ZERO));
    let (user, project) = keystone.ids().unwrap();

    // One token for all calls of a while, and the catalogue says where Neutron is.
    let neutron = Neutron::new(cloud(password(keystone.password()), before_keystone.url(), None), LIMITS).unwrap();
    let begun = Instant::now();
    for _ in 0..3 {
        neutron.ports(&PortFilter::default()).await.unwrap();
    }
    let tokens = || before_keystone.seen().len();
    let first = tokens();
    assert!(first >= 1 && before_keystone.seen().iter().all(|line| line == "POST /v3/auth/tokens"), "{:?}", before_keystone.seen());
    // A token that had ended would be refused: Neutron asks about each one. Two lives of it pass.
    while begun.elapsed() < Duration::from_secs(2 * u64::from(LIFE) + 2) {
        neutron.ports(&PortFilter::default()).await.unwrap();
        // Sleeps: tokens end with time alone.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(tokens() - first >= 2, "{} tokens, then {}", first, tokens());

    // Neutron does not take it: a new one is got, and the call is made once.
    let through = Neutron::new(cloud(password(keystone.password()), before_keystone.url(), Some(&before_neutron.url())), LIMITS).unwrap();
    through.extensions().await.unwrap();
    let known = tokens();
    before_neutron.plan(&[answer("401 Unauthorized", "", r#"{"error": {"code": 401, "message": "no longer"}}"#)]);
    through.extensions().await.unwrap();
    assert_eq!((before_neutron.seen().len(), tokens() - known), (2, 1));
    before_neutron.plan(&[(); 2].map(|()| answer("401 Unauthorized", "", "")));
    assert!(matches!(through.extensions().await, Err(Error::Refused { status: 401, .. })), "not for ever");

    let wanted = json!({"application_credential": {"name": "netloom", "secret": "s3cret", "roles": [{"name": "admin"}]}});
    let made = keystone.ask("POST", &format!("users/{user}/application_credentials"), &wanted).unwrap();
    let by_id = Auth::ApplicationCredential { user: None, id: id(&made["application_credential"]), secret: "s3cret".into() };
    let by_name = Auth::ApplicationCredential { user: Some(User::Id(user)), id: "netloom".to_owned(), secret: "s3cret".into() };
    for auth in [by_id, by_name] {
        let neutron = Neutron::new(cloud(auth, keystone.url(), None), LIMITS).unwrap();
        let found = neutron.ports(&PortFilter { device_id: Some(project.clone()), ..PortFilter::default() }).await;
        assert_eq!(found.unwrap(), []);
    }
    refusals(&keystone).await;
}

async fn refusals(keystone: &Keystone) {
    let ask = async |cloud| match Neutron::new(cloud, LIMITS).unwrap().extensions().await {
        Err(Error::Keystone(e)) => e,
        other => panic!("{other:?}"),
    };
    let wrong = ask(cloud(password("wrong"), keystone.url(), None)).await;
    assert!(
        matches!(&wrong, KeystoneError::Refused { status: 401, message, .. } if message.contains("requires authentication")),
        "{wrong}"
    );
    assert!(!wrong.to_string().contains("wrong)"), "no secret is told: {wrong}");
    let mut elsewhere = cloud(password(keystone.password()), keystone.url(), None);
    elsewhere.region = Some("R9".to_owned());
    let told = ask(elsewhere).await.to_string();
    assert!(told.contains("no network endpoint public in R9; it has public in RegionOne, internal in RegionOne"), "{told}");
    let no_keystone = ask(cloud(password("x"), format!("{}/nowhere", keystone.url()), None)).await;
    assert!(matches!(no_keystone, KeystoneError::Refused { status: 404, .. }), "{no_keystone}");
    let _all_is_there: Value = keystone.ask("GET", "services", &Value::Null).unwrap();
}
