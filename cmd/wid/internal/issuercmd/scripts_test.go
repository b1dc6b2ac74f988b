package issuercmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cloudPrograms stand in for aws, gcloud and kubectl. As the real ones do, they
// refuse to create what exists, and describe nothing that does not. Each keeps
// what it created in a file of $HOME/made.
const cloudPrograms = `#!/bin/bash
made=$HOME/made
mkdir -p "$made"
value() { local want=$1; shift; while [ $# -gt 0 ]; do [ "$1" = "$want" ] && { echo "$2"; return; }; shift; done; }
create() {
	[ ! -e "$made/$1" ] || { echo "EntityAlreadyExists: $1" >&2; exit 254; }
	cat > "$made/$1"; echo "created $1" >> "$HOME/log"
}
show() { cat "$made/$1" 2>/dev/null || { echo "NoSuchEntity: $1" >&2; exit 254; }; }
case "$(basename "$0") $*" in
"aws iam create-open-id-connect-provider "*) url=$(value --url "$@"); create "provider:${url//[\/:]/_}" </dev/null;;
"aws iam get-open-id-connect-provider "*)
	arn=$(value --open-id-connect-provider-arn "$@"); url=https://${arn#*oidc-provider/}
	show "provider:${url//[\/:]/_}";;
"aws iam create-role "*)
	file=$(value --assume-role-policy-document "$@")
	create "role:$(value --role-name "$@")" < "${file#file://}";;
"aws iam get-role "*) show "role:$(value --role-name "$@")";;
"gcloud iam workload-identity-pools create "*) create "pool:$4" </dev/null;;
"gcloud iam workload-identity-pools providers create-oidc "*)
	value --issuer-uri "$@" | create "oidc:$(value --workload-identity-pool "$@"):$5";;
"gcloud iam workload-identity-pools providers describe "*) show "oidc:$(value --workload-identity-pool "$@"):$5";;
"gcloud iam service-accounts add-iam-policy-binding "*) ;;
"kubectl "*annotate*) echo annotated >> "$HOME/log";;
*) echo "unknown: $0 $*" >&2; exit 1;;
esac
`

// A printed script runs as it is, again and for further ServiceAccounts, and
// stops before it takes another's identity.
func TestTrustScriptsRunAgain(t *testing.T) {
	const pool = "--provider=projects/123456789012/locations/global/workloadIdentityPools/"
	aws := func(issuer, name string) []string {
		return []string{"aws", "--issuer=" + issuer, "--service-account=tenant-a/" + name, "--role=" + role(name)}
	}
	gcp := func(issuer, name, provider string) []string {
		return []string{"gcp", "--issuer=" + issuer, "--service-account=tenant-a/" + name, pool + provider,
			"--google-service-account=a@p.iam.gserviceaccount.com"}
	}
	const one, two = "https://one.example", "https://two.example/it's"
	for name, tc := range map[string]struct {
		scripts [][]string
		log     string
		stops   bool // at the last script
	}{
		"AWS, once": {[][]string{aws(one, "app")},
			"created provider:https___one.example; created role:app; annotated", false},
		"AWS, twice": {[][]string{aws(one, "app"), aws(one, "app")},
			"created provider:https___one.example; created role:app; annotated; annotated", false},
		"AWS, a second ServiceAccount": {[][]string{aws(one, "app"), aws(one, "job")},
			"created provider:https___one.example; created role:app; annotated; created role:job; annotated", false},
		"AWS, a second issuer": {[][]string{aws(one, "app"), aws(two, "job")},
			"created provider:https___one.example; created role:app; annotated; created provider:https___two.example_it's; created role:job; annotated", false},
		"AWS, another's role": {[][]string{aws(one, "app"),
			{"aws", "--issuer=" + one, "--service-account=tenant-b/app", "--role=" + role("app")}},
			"created provider:https___one.example; created role:app; annotated", true},
		"Google, once": {[][]string{gcp(one, "app", "east/providers/k8s-1")},
			"created pool:east; created oidc:east:k8s-1; annotated; annotated", false},
		"Google, a second account": {[][]string{gcp(one, "app", "east/providers/k8s-1"),
			gcp(one, "job", "east/providers/k8s-1")},
			"created pool:east; created oidc:east:k8s-1; annotated; annotated; annotated; annotated", false},
		"Google, twice, a quoted issuer": {[][]string{gcp(two, "app", "east/providers/k8s-1"),
			gcp(two, "app", "east/providers/k8s-1")},
			"created pool:east; created oidc:east:k8s-1; annotated; annotated; annotated; annotated", false},
		"Google, another's provider": {[][]string{gcp(one, "app", "east/providers/k8s-1"),
			gcp(two, "app", "east/providers/k8s-1")}, "created pool:east; created oidc:east:k8s-1; annotated; annotated", true},
		"Google, another's pool": {[][]string{gcp(one, "app", "east/providers/k8s-1"),
			gcp(two, "app", "east/providers/other")}, "created pool:east; created oidc:east:k8s-1; annotated; annotated", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			for _, program := range []string{"aws", "gcloud", "kubectl"} {
				w.program(program, cloudPrograms)
			}
			for i, args := range tc.scripts {
				script := w.must(append([]string{"trust"}, args...)...)
				out, err := w.bash(nil, "-euc", script)
				if stops := tc.stops && i == len(tc.scripts)-1; (err != nil) != stops ||
					stops != strings.Contains(out, "EntityAlreadyExists") {
					t.Errorf("script %d ends with %v: %s\n%s", i, err, out, script)
				}
			}
			content, _ := os.ReadFile(filepath.Join(w.home, "log")) // missing: nothing was done
			if log := strings.ReplaceAll(strings.TrimSpace(string(content)), "\n", "; "); log != tc.log {
				t.Errorf("got\n%s, want\n%s", log, tc.log)
			}
		})
	}
}
