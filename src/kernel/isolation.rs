//! CPUs that the kernel's command line isolates (`isolcpus=`).

/// Whether a kernel with this command line has CPUs isolated from scheduling domains. Such a kernel
/// loads no sched_ext scheduler (scx_enable(), kernel/sched/ext.c).
pub fn isolates_domains(command_line: &str) -> bool {
    let mut values =
        command_line.split_whitespace().filter_map(|word| word.strip_prefix("isolcpus="));
    values.any(is_of_domains)
}

/// Whether `value`, that of `isolcpus=`, has the flag `domain`, or no flag at all
/// (Documentation/admin-guide/kernel-parameters.txt). The kernel skips flags that it does not know
/// (housekeeping_isolcpus_setup(), kernel/sched/isolation.c).
fn is_of_domains(value: &str) -> bool {
    let is_list = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let flags: Vec<&str> = value.split(',').take_while(|word| !is_list(word)).collect();
    flags.contains(&"domain") || !flags.iter().any(|flag| ["nohz", "managed_irq"].contains(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_isolation_from_domains_counts() {
        for (command_line, isolates) in [
            ("ro quiet", false),
            ("ro isolcpus=1 quiet", true),
            ("isolcpus=1,3-5", true),
            ("isolcpus=domain,managed_irq,1-2", true),
            ("isolcpus=managed_irq,1", false),
            ("isolcpus=managedirq,1", true),
            ("isolcpus=managedirq,nohz,1", false),
            ("isolcpus=nohz,1 isolcpus=2", true),
        ] {
            assert_eq!(isolates_domains(command_line), isolates, "{command_line}");
        }
    }
}
