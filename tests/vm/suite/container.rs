//! gthctl in the container that deploy/ describes. Like a container runtime, runc makes it from the
//! DaemonSet, with the privileges and mounts that the manifest grants and no others.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::placement::all_on;
use crate::support::cluster::kustomized;
use crate::support::gthctl::{self, LOADED, Output, report, status};
use crate::support::kernel::{self, runs_on};
use crate::support::nic::{Restore, SAVED, affinities};
use crate::support::shared;
use crate::support::task::Task;

const SOON: Duration = Duration::from_secs(30);
/// The parts of /proc and /sys that a container may not write or see, as containerd has them
/// (pkg/oci/spec.go, populateDefaultUnixSpec()).
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
const MASKED: [&str; 8] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/sys/firmware",
    "/proc/scsi",
];

/// Every capability (include/uapi/linux/capability.h), which a privileged container has.
const ALL: &str = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP \
    LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER \
    SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE \
    SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP \
    MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF \
    CHECKPOINT_RESTORE";

/// A container of the DaemonSet. Ends when dropped.
struct Container {
    bundle: TempDir,
    runc: Option<Child>,
    /// From its manifest.
    ready: Vec<String>,
}

fn runc(args: &[&str]) -> Command {
    let dir = PathBuf::from(std::env::var_os("RUNC_DIR").expect("set by tests/vm/test-kubernetes"));
    // runc re-executes itself with an empty environment, so LD_LIBRARY_PATH does not help.
    let library = Path::new("/lib/x86_64-linux-gnu/libseccomp.so.2");
    if !library.exists() {
        fs::copy(dir.join("libseccomp.so.2"), library).unwrap();
    }
    let mut command = Command::new(dir.join("runc"));
    command.args(args).stdin(Stdio::null());
    command
}

/// The pod's specification in a directory of deploy/.
fn specification(directory: &str) -> Value {
    let documents = serde_yaml::Deserializer::from_str(&kustomized(directory))
        .map(|document| serde::Deserialize::deserialize(document).unwrap())
        .collect::<Vec<Value>>();
    let daemonset = documents.into_iter().find(|document| document["kind"] == "DaemonSet");
    daemonset.unwrap()["spec"]["template"]["spec"].clone()
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().into()).collect()
}

/// The mounts that every container gets, and those of the manifest.
fn mounts(specification: &Value, config: &Path) -> Vec<Value> {
    let is_privileged = specification["containers"][0]["securityContext"]["privileged"] == true;
    let mode = if is_privileged { "rw" } else { "ro" };
    let mount = |kind: &str, at: &str, options: &[&str]| json!({"destination": at, "type": kind, "source": kind, "options": options});
    let mut mounts = vec![
        mount("proc", "/proc", &["nosuid", "noexec", "nodev"]),
        mount("tmpfs", "/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("sysfs", "/sys", &["nosuid", "noexec", "nodev", mode]),
        mount("cgroup", "/sys/fs/cgroup", &["nosuid", "noexec", "nodev", "relatime", mode]),
    ];
    for one in specification["containers"][0]["volumeMounts"].as_array().unwrap() {
        let mut volumes = specification["volumes"].as_array().unwrap().iter();
        let volume = volumes.find(|volume| volume["name"] == one["name"]).unwrap();
        let source = match volume["hostPath"]["path"].as_str() {
            Some(path) => Path::new(path),
            None => config,
        };
        if volume["hostPath"]["type"] == "DirectoryOrCreate" {
            fs::create_dir_all(source).unwrap();
        }
        let mode = if one["readOnly"] == true { "ro" } else { "rw" };
        mounts.push(json!({"destination": one["mountPath"], "type": "bind", "source": source,
            "options": ["rbind", "rprivate", mode]}));
    }
    mounts
}

impl Container {
    /// Starts the container of that directory with a policy and waits until its probe reports it ready.
    fn start(directory: &str, policy: &str) -> Self {
        shared::unload();
        let bundle = tempfile::tempdir().unwrap();
        let of = |name: &str| bundle.path().join(name);
        fs::create_dir_all(of("rootfs")).unwrap();
        fs::copy(gthctl::binary(), of("rootfs/gthctl")).unwrap();
        fs::create_dir_all(of("config/..1")).unwrap();
        fs::write(of("config/..1/config.yaml"), "policy: policy.yaml").unwrap();
        fs::write(of("config/..1/policy.yaml"), policy).unwrap();
        symlink("..1", of("config/..data")).unwrap();
        for key in ["config.yaml", "policy.yaml"] {
            symlink(format!("..data/{key}"), of("config").join(key)).unwrap();
        }
        let pod = specification(directory);
        assert_eq!(pod["hostPID"], true);
        let main = &pod["containers"][0];
        let context = &main["securityContext"];
        let is_privileged = context["privileged"] == true;
        assert!(is_privileged || context["capabilities"]["drop"] == json!(["ALL"]));
        let capabilities: Vec<String> = match is_privileged {
            true => ALL.split_whitespace().map(Into::into).collect(),
            false => words(&context["capabilities"]["add"]),
        };
        let capabilities: Vec<String> =
            capabilities.iter().map(|name| format!("CAP_{name}")).collect();
        let mut args = words(&main["args"]);
        args.insert(0, "/gthctl".into());
        let mut namespaces = vec!["mount", "ipc", "uts", "cgroup"];
        if pod["hostNetwork"] != true {
            namespaces.push("network");
        }
        let hidden = |paths: &[&str]| if is_privileged { json!([]) } else { json!(paths) };
        let specification = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": context["runAsUser"], "gid": context["runAsGroup"]},
                "args": args,
                "cwd": "/",
                "env": ["PATH=/", "NODE_NAME=node-1"],
                "capabilities": {"bounding": capabilities, "effective": capabilities,
                    "permitted": capabilities},
                "noNewPrivileges": context["allowPrivilegeEscalation"] == false,
            },
            "root": {"path": "rootfs", "readonly": context["readOnlyRootFilesystem"]},
            "mounts": mounts(&pod, &of("config")),
            "linux": {
                "namespaces": namespaces.iter().map(|kind| json!({"type": kind})).collect::<Vec<_>>(),
                "cgroupsPath": "/kubepods/burstable/podgthctl/main",
                "resources": {"devices": [{"allow": false, "access": "rwm"}]},
                "readonlyPaths": hidden(&READ_ONLY), "maskedPaths": hidden(&MASKED),
            },
        });
        // Mount points; a container runtime makes them in its snapshot.
        for dir in ["proc", "dev", "sys", "etc/gthctl", "run/gthctl"] {
            fs::create_dir_all(of("rootfs").join(dir)).unwrap();
        }
        fs::write(of("rootfs/etc/passwd"), "").unwrap();
        fs::write(of("config.json"), specification.to_string()).unwrap();
        let ready = words(&main["readinessProbe"]["exec"]["command"]);
        let mut container = Self { bundle, runc: None, ready };
        container.run();
        container
    }

    /// Like `start`, with the existing bundle.
    fn run(&mut self) {
        let log = fs::File::create(self.bundle.path().join("log")).unwrap();
        // pivot_root(2) cannot leave an initramfs.
        let mut command = runc(&["run", "--no-pivot", "--bundle"]);
        command.arg(self.bundle.path()).arg("gthctl");
        self.runc = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let mut last = None;
        let up = kernel::wait(LOADED, || {
            let ended = self.runc.as_mut().unwrap().try_wait().unwrap().is_some();
            assert!(!ended, "{}", self.log());
            let probe = self.probe();
            let code = probe.code();
            last = Some(probe);
            code == 0
        });
        assert!(up, "{}\n{}", self.log(), last.unwrap().stderr);
    }

    fn log(&self) -> String {
        kernel::read(self.bundle.path().join("log").to_str().unwrap())
    }

    /// The readiness probe, in the container.
    fn probe(&self) -> Output {
        let mut args = vec!["exec", "gthctl"];
        args.extend(self.ready.iter().map(String::as_str));
        gthctl::output(&mut runc(&args))
    }

    fn pid(&self) -> u32 {
        status().unwrap().pid
    }

    /// A new version of the ConfigMap, as the kubelet writes it.
    fn update(&self, policy: &str) {
        let config = self.bundle.path().join("config");
        fs::create_dir(config.join("..2")).unwrap();
        fs::copy(config.join("..1/config.yaml"), config.join("..2/config.yaml")).unwrap();
        fs::write(config.join("..2/policy.yaml"), policy).unwrap();
        symlink("..2", config.join("..data_tmp")).unwrap();
        fs::rename(config.join("..data_tmp"), config.join("..data")).unwrap();
    }

    /// Ends it as the kubelet does.
    fn end(&mut self) {
        kill(Pid::from_raw(self.pid() as i32), Signal::SIGTERM).unwrap();
        assert_eq!(self.runc.take().unwrap().wait().unwrap().code(), Some(0), "{}", self.log());
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(mut runc) = self.runc.take() {
            let _ = self::runc(&["delete", "--force", "gthctl"]).output();
            let _ = runc.wait();
        }
    }
}

/// The container's effective capabilities (proc_pid_status(5)).
fn effective(container: &Container) -> u64 {
    let status = kernel::read(&format!("/proc/{}/status", container.pid()));
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

#[test]
fn the_daemonset_has_what_it_needs() {
    let task = Task::spinner("hot");
    let hot = |cpu| {
        format!("strategies: [{{command_regex: ^hot$, user: root, cpus: {cpu}, exclusive: true}}]")
    };
    let mut container = Container::start("deploy", &hot(1));
    assert_eq!(kernel::ops(), "gthctl");
    // CAP_PERFMON and CAP_BPF, and nothing else (include/uapi/linux/capability.h).
    assert_eq!(effective(&container), 1 << 38 | 1 << 39);
    assert!(runs_on(task.pid, 1));
    // From the node, through the socket.
    let explained = report(&["explain", &task.pid.to_string()]);
    println!("{explained:#}");
    assert_eq!(explained["in_force"], true, "{explained}");
    // Where sched_ext's tools on the node look.
    UnixStream::connect("/run/scx/root/stats").unwrap();
    let memory = kernel::read("/sys/fs/cgroup/kubepods/burstable/podgthctl/main/memory.peak");
    println!("memory.peak: {memory:?}");

    container.update(&hot(2));
    let followed = || status().is_some_and(|status| status.generation == 2);
    assert!(kernel::wait(SOON, followed), "{}", container.log());
    assert!(runs_on(task.pid, 2));

    // A rollout: the old container ends, then the new one begins.
    container.end();
    assert!(!kernel::is_ext(task.pid));
    container.run();
    assert!(runs_on(task.pid, 2));
    container.end();
    assert_eq!(kernel::state(), "disabled");
}

/// gthctl sees packets with CAP_SYS_ADMIN, which deploy/gtp grants, and not without it.
#[test]
fn packets_are_seen_with_one_capability_more() {
    let policy = "strategies: [{gtp: gtp, user: root, priority: 1}]";
    let functions = || status().unwrap().traffic.unwrap().functions;
    let mut container = Container::start("deploy", policy);
    let refused = || container.log().contains("cannot be attached to");
    assert!(kernel::wait(SOON, refused), "{}", container.log());
    assert_eq!(functions(), [""; 0]);
    container.end();
    let mut container = Container::start("deploy/gtp", policy);
    assert_eq!(effective(&container), 1 << 38 | 1 << 39 | 1 << 21);
    assert!(kernel::wait(SOON, || functions().len() == 2), "{}", container.log());
    container.end();
}

/// gthctl places interrupts with the privileges of deploy/irq, and not with those of deploy/.
#[test]
fn interrupts_are_placed_from_a_privileged_container() {
    let _restore = Restore;
    let before = affinities("eth0");
    let policy = "strategies: []\nirq: [{nic: eth0, cpus: 2}]";
    let mut container = Container::start("deploy", policy);
    assert_eq!(affinities("eth0"), before);
    container.end();
    let mut container = Container::start("deploy/irq", policy);
    assert!(kernel::wait(SOON, || all_on("eth0", "2")), "{}", container.log());
    container.end();
    assert_eq!((&affinities("eth0"), Path::new(SAVED).exists()), (&before, false));

    // CRI-O bans CPU 1 on the node meanwhile.
    const BANNED: &str = "/etc/sysconfig/irqbalance";
    let allow = |irq: u32, cpus: &str| {
        fs::write(format!("/proc/irq/{irq}/smp_affinity_list"), cpus).unwrap();
    };
    for &irq in before.keys() {
        allow(irq, "0-1");
    }
    container.run();
    assert!(kernel::wait(SOON, || all_on("eth0", "2")), "{}", container.log());
    fs::write(BANNED, "IRQBALANCE_BANNED_CPUS=2\n").unwrap();
    container.end();
    fs::remove_file(BANNED).unwrap();
    assert!(all_on("eth0", "0"), "{:?}", affinities("eth0"));
    for (&irq, cpus) in &before {
        allow(irq, cpus);
    }
}
