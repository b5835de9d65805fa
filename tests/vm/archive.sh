# shellcheck shell=bash disable=SC2154,SC2016
# A private view of Debian's archive. It looks up and downloads packages of another
# release, or for another architecture ($arch), from the mirror this machine already uses,
# without touching the machine's own package lists. Proxies and the like come from its apt.conf.

# The machine's own release, such as bookworm.
codename() { (. /etc/os-release && echo "$VERSION_CODENAME"); }

# The machine's mirror: the URI of its own release's main archive.
mirror() {
    apt-get indextargets --format '$(RELEASE)|$(COMPONENT)|$(LABEL)|$(REPO_URI)' |
        awk -F'|' -v c="$(codename)" '
            $1 == c && $2 == "main" {
                if ($3 == "Debian") { print $4; found = 1; exit }
                if (!other) other = $4
            }
            END { if (!found && other) print other }'
}

# archive SUITE ARGS...: apt-get or apt-cache, looking at SUITE only.
archive() {
    local suite=$1 tool=$2 dir=$cache/archive/$1
    shift 2
    # apt sends nothing but errors to standard error once -qq is given.
    "$tool" -qq \
        -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$dir/lists" -o Dir::State::status=/dev/null \
        -o APT::Architecture="$arch" -o APT::Architectures="$arch" \
        -o Dir::Cache="$dir/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}

# Fetches SUITE's package list.
archive_update() {
    local suite=$1 dir=$cache/archive/$1 uri
    uri=$(mirror)
    [[ -n $uri ]] || die "no Debian mirror in this machine's apt configuration (apt-get indextargets)"
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
        "$uri" "$suite" >"$dir/sources.list"
    archive "$suite" apt-get update
}

# Is PACKAGE in SUITE's list?
archive_has() {
    [[ -n $(archive "$1" apt-cache show --no-all-versions "$2" 2>/dev/null) ]]
}

# Names of SUITE's packages that match the extended regular expression, oldest version first.
archive_names() {
    archive "$1" apt-cache pkgnames | grep -E "^($2)\$" | sort -V
}

# archive_download SUITE PACKAGE...: into the current directory.
archive_download() {
    local suite=$1
    shift
    archive "$suite" apt-get download "$@" >&2
}

# archive_unpack SUITE ROOT PACKAGE...: with all they depend on. It configures nothing: no
# package's scripts run.
archive_unpack() {
    local suite=$1 root=$2 debs=$2.debs deb
    shift 2
    mkdir -p "$debs/partial"
    archive "$suite" apt-get -y --no-install-recommends --download-only \
        -o Dir::Cache::archives="$debs" -o Debug::NoLocking=1 install "$@" || return
    for deb in "$debs"/*.deb; do
        dpkg-deb -x "$deb" "$root"
    done
    rm -r "$debs"
}
