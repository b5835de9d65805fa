//! Strategies of a Gthulhu decision maker, which come after the policy file's rules.

#[path = "../../../src/decision_maker/test_api.rs"]
#[allow(dead_code)]
mod test_api;

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use self::test_api::{PUBLIC_KEY, TestDecisionMaker};
use crate::support::gthctl::{self, Gthctl, policy, replace_file, report};
use crate::support::kernel::{self, runs_on};
use crate::support::task::{self, Task};
use crate::support::test_server;
use crate::support::vm::{self, Vm};

pub const VM: Vm = vm::OWN;

/// The pauses between attempts grow while the server is away.
const RETRIED: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(30);
const OWN: &str = "{name: own, command_regex: ^own$, cpus: 1, exclusive: true}";

/// A task that wakes up all the time: the scheduler counts the wake-ups that have a priority.
fn waker(name: &str) -> Task {
    Task::fork(name, task::wake_often(2_000_000))
}

fn priority_wakeups(gthctl: &Gthctl) -> u64 {
    gthctl.counters().get("COUNT_PRIO_WAKEUPS")
}

fn some_task_has_priority(gthctl: &Gthctl) -> bool {
    let before = priority_wakeups(gthctl);
    kernel::wait(SOON, || priority_wakeups(gthctl) > before + 50)
}

fn no_task_has_priority(gthctl: &Gthctl) -> bool {
    let still = || {
        let before = priority_wakeups(gthctl);
        std::thread::sleep(Duration::from_millis(500));
        priority_wakeups(gthctl) == before
    };
    kernel::wait(SOON, still)
}

fn api_status() -> Value {
    report(&["status"])["api"].clone()
}

/// The rule that applies to the task.
fn rule(task: &Task) -> Value {
    report(&["explain", &task.pid.to_string()])["rule"].clone()
}

fn names(rules: &Value) -> Vec<&str> {
    let rules = rules["rules"].as_array().unwrap().iter();
    rules.map(|rule| rule["name"].as_str().unwrap()).collect()
}

#[test]
fn strategies_come_change_and_stay_while_the_server_is_away() {
    let mut api = TestDecisionMaker::new("127.0.0.1", None);
    let url = format!("http://{}", api.addr);
    let on = format!(
        "api: {{enabled: true, url: '{url}', interval: 1, auth_enabled: true, public_key_path: jwt.pem}}"
    );
    let files = gthctl::files(&on, &format!("strategies: [{OWN}]"));
    fs::write(files.path().join("jwt.pem"), PUBLIC_KEY).unwrap();
    // A forked task would keep the server's port open, so all tasks are forked before the server starts.
    let (own, first, second) = (Task::spinner("own"), waker("first"), waker("second"));

    // Nobody answers yet.
    let gthctl = Gthctl::start_on(files, &[]);
    let refused = format!("gthctl: error: Gthulhu's API at {url}: ");
    assert!(gthctl.says(&refused, 1), "{}", gthctl.stderr());
    assert!(runs_on(own.pid, 1));
    let status = api_status();
    assert_eq!((&status["url"], &status["rules"]), (&json!(url), &json!(0)));
    assert!(status["error"]["why"].as_str().unwrap().contains("refused"), "{status}");
    assert!(status.get("answer_age_ms").is_none());
    assert!(no_task_has_priority(&gthctl));

    // The file's rule comes first where both match.
    api.put(r#"[{"priority":1,"execution_time":5000000,"command_regex":"^(own|first)$"}]"#);
    api.start();
    assert!(kernel::wait(RETRIED, || api_status()["rules"] == 1), "{}", gthctl.stderr());
    assert!(some_task_has_priority(&gthctl));
    assert_eq!((rule(&own), rule(&first)), (json!("own"), json!("api rule 1")));
    assert_eq!(rule(&second), Value::Null);
    assert!(runs_on(own.pid, 1));
    // Repeating the same answer changes nothing.
    let before = report(&["status"]);
    api.requests.try_iter().for_each(drop);
    (0..3).for_each(|_| drop(api.request("GET ")));
    let after = report(&["status"]);
    assert_eq!(
        (&after["generation"], after["file_rules"].as_u64()),
        (&before["generation"], Some(1))
    );
    assert!(
        after["api"]["answer_age_ms"].as_u64().unwrap() < 30_000
            && after["api"].get("error").is_none()
    );

    // The server goes, its strategy stays and one line reports it. The server stops between two requests:
    // a request that it left unanswered would fail in another way.
    drop(api.request("GET "));
    api.stop();
    assert!(kernel::wait(RETRIED, || api_status().get("error").is_some()), "{}", gthctl.stderr());
    std::thread::sleep(Duration::from_secs(3));
    assert!(some_task_has_priority(&gthctl));
    assert_eq!((rule(&first), &api_status()["rules"]), (json!("api rule 1"), &json!(1)));
    assert_eq!(gthctl.has_said(&refused), 2, "{}", gthctl.stderr());
    let table = policy(&["status"]).stdout;
    assert!(table.contains("API fails") && table.contains("last answer"), "{table}");

    // The server comes back with another strategy.
    api.put(&format!(r#"[{{"priority":1,"execution_time":0,"pid":{}}}]"#, second.pid));
    api.start();
    assert!(kernel::wait(RETRIED, || rule(&second) == "api rule 1"), "{}", gthctl.stderr());
    assert_eq!((rule(&first), rule(&own)), (Value::Null, json!("own")));
    assert!(some_task_has_priority(&gthctl));
    drop(second);
    assert!(no_task_has_priority(&gthctl));

    // A broken answer changes nothing.
    let generation = report(&["status"])["generation"].clone();
    api.answer(200, r#"{"success":true,"scheduling":[{"pid":0}]}"#);
    let broken = format!("gthctl: error: {url}/api/v1/scheduling/strategies:1:");
    assert!(gthctl.says(&broken, 1), "{}", gthctl.stderr());
    assert_eq!(report(&["status"])["generation"], generation);
    api.put(r#"[{"priority":1,"execution_time":0,"command_regex":"^first$"}]"#);
    assert!(kernel::wait(RETRIED, || rule(&first) == "api rule 1"), "{}", gthctl.stderr());

    // A new policy file leaves the strategies where they are, and so does a rollback.
    let new = gthctl.policy().with_file_name("new.yaml");
    fs::write(&new, format!("strategies: [{{name: new, user: root, weight: 50}}, {OWN}]")).unwrap();
    let applied = policy(&["apply", new.to_str().unwrap(), "--yes"]);
    assert_eq!(applied.code(), 0, "{}", applied.stderr);
    assert_eq!(names(&report(&["show"])), ["new", "own", "api rule 1"]);
    assert_eq!(policy(&["rollback", "--yes"]).code(), 0);
    assert_eq!(names(&report(&["show"])), ["own", "api rule 1"]);
    assert!(some_task_has_priority(&gthctl));

    // The config disables the API while gthctl runs.
    let off = on.replace("enabled: true, url", "enabled: false, url");
    replace_file(&gthctl.config(), &format!("{off}\npolicy: policy.yaml\n"));
    assert!(kernel::wait(SOON, || names(&report(&["show"])) == ["own"]), "{}", gthctl.stderr());
    assert!(no_task_has_priority(&gthctl));
    assert_eq!(api_status(), Value::Null);
    assert!(runs_on(own.pid, 1));
    gthctl.stop();
}
