SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
FUZZTIME ?= 1m
MODULES := . tools test/kube test/images test/clouds test/services test/flux test/monitoring test/soak auth/clusterprofile/interop auth/exchange/interop podidentity/proxy/interop auth/spiffe auth/grpccreds bench test/node
NESTED := $(filter-out .,$(MODULES))
# The minor version of Kubernetes that tests run against: empty for the one in test/kube/go.mod, or 1.36.
export KUBE ?=
# Packages whose tests import one of these need a control plane. PART=kube tests only them, and PART=unit only the others.
CONTROL_PLANE := internal/testing/(kubetest|regtest)
PART ?=
SOAKTIME ?= 5m
SOAKRATE ?= 2000
FLEET ?= 10000
# Those whose tests run with the main module's.
TESTED := . tools test/images test/clouds test/services test/flux test/monitoring auth/clusterprofile/interop auth/exchange/interop podidentity/proxy/interop auth/spiffe auth/grpccreds bench
# Built from source with the versions that tools/go.mod pins.
GOLANGCI_LINT := go tool -modfile=tools/go.mod golangci-lint

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: test
test: ## all tests with the race detector, on a real control plane too; none may be skipped. KUBE=1.36 for an older one
	@start=$$SECONDS race=-race invert=-v
	if [ "$(PART)" != unit ]; then
		assets=$$(go -C test/kube run .); export KUBEBUILDER_ASSETS="$$assets" invert=
		echo "control plane: $$((SECONDS - start)) s"
	fi
	[ "$$(go env CGO_ENABLED)" = 1 ] || { race=; echo "no C compiler: without the race detector"; [ -z "$${CI:-}" ]; }
	packages() { # of the part in the module $$1
		[ -n "$(PART)" ] || { echo ./...; return; }
		imports=$$(go -C "$$1" list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./...) || return
		grep -E $$invert '$(CONTROL_PLANE)' <<<"$$imports" | cut -d' ' -f1 || true
	}
	tests() { # of the modules $$2..., with $$1 packages at a time
		local p=$$1 failed= m chosen; shift
		for m; do
			chosen=$$(packages $$m) || failed=1; [ -n "$$chosen" ] || continue
			go -C $$m test $$race -p $$p -timeout 40m -vet=off -ldflags=-w -json $$chosen || failed=1
		done; [ -z "$$failed" ]
	}
	# The small modules run beside the main one, and are printed after it.
	nested=$$(mktemp); trap 'rm -f "$$nested"' EXIT; trap 'kill 0' INT # the background ignores it
	{
		tests 2 $(filter-out .,$(TESTED)) >"$$nested" 2>&1 & failed=
		tests 3 . || failed=1; wait $$! || failed=1
		cat "$$nested"; [ -z "$$failed" ]
	} | go -C tools run ./testsum

.PHONY: test-node
test-node: ## all programs on a real node, in namespaces of its own; needs root and packages of Debian, and says which. AWS_IMAGE=FILE.tar tries an image with the AWS CLI or boto3
	@go -C test/node run . -possible
	export KUBEBUILDER_ASSETS="$$(go -C test/kube run .)" NODE_ASSETS="$$(go -C test/kube run . -node)"
	NODE_AWS_IMAGE='$(abspath $(AWS_IMAGE))' go -C test/node run . -run '$(RUN)'

.PHONY: test-newest
test-newest: ## the tests with the newest Kubernetes libraries and cloud SDKs
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT
	cp go.mod go.sum "$$dir"; mod="-modfile=$$dir/go.mod"
	go get $$mod sigs.k8s.io/controller-runtime@latest $$(go list -m -f '{{if not .Indirect}}{{.Path}}@latest{{end}}' all | grep -E '^(k8s.io|github.com/aws|github.com/Azure|cloud.google.com|github.com/google/go-containerregistry)')
	go mod tidy $$mod
	assets=$$(go -C test/kube run .)
	KUBEBUILDER_ASSETS="$$assets" go test $$mod -race -timeout 40m -json ./... | go -C tools run ./testsum

.PHONY: lint
lint: ## formatting, vet, linters, tidy modules, workflows
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt would change: $$unformatted"; exit 1; }
	for m in $(MODULES); do go -C $$m mod tidy -diff; go -C $$m vet $$([ $$m = tools ] && echo ./testsum ./mutate || echo ./...); done
	go -C test/kube mod tidy -modfile=kube-1.36.mod -diff
	# lll reads the main module alone. A line with a long literal, an address or a series of a metric stays whole there
	# too. A program writes the two documents.
	long=$$(git ls-files -z '*.md' $(addsuffix /*.go,$(NESTED)) ':!bench/RESULTS.md' ':!docs/monitoring/metrics.md' | LC_ALL=C.UTF-8 xargs -0 grep -nHE '.{121}' |
		LC_ALL=C.UTF-8 grep -vE '"[^"]{50,}"|`[^`]{50,}|^[^:]*:[0-9]+:\s*//\s|:  [a-z_]+\{') || true
	[ -z "$$long" ] || { echo "$$long"; echo "these lines have more than 120 columns: break them"; exit 1; }
	! git grep -nE '(^|[^a-zA-Z.])/(root|home|Users)/[a-z]' -- ':!Makefile' || { echo "a path of somebody's machine"; exit 1; }
	go tool -modfile=tools/go.mod actionlint
	$(GOLANGCI_LINT) run ./...
	for m in auth/spiffe auth/grpccreds; do (cd $$m; go tool -modfile=../../tools/go.mod golangci-lint run ./...); done # modules of their own

.PHONY: apidiff
apidiff: ## incompatible changes of the Go API since the last tag; fails if CHANGELOG.md does not announce them
	@tag=$$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || {
		why="no commit has a tag"; [ "$$(git rev-parse --is-shallow-repository)" != true ] || why="the clone is shallow; git fetch --unshallow --tags completes it"
		echo "apidiff compares nothing: $$why"; exit 0
	}
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; mkdir "$$dir/old"; git archive "$$tag" | tar -x -C "$$dir/old"
	go build -modfile=tools/go.mod -o "$$dir/apidiff" golang.org/x/exp/cmd/apidiff
	export_api() { (cd "$$1"; "$$dir/apidiff" -m -w "$$dir/$$2" github.com/workloadid/workloadid); }; export_api "$$dir/old" old.api; export_api . new.api
	broken=$$("$$dir/apidiff" -m -incompatible "$$dir/old.api" "$$dir/new.api" 2>&1 | sed -E '/^Ignoring internal|^- (package )?[^:]*\/(cmd|examples)\//d') || { echo "$$broken"; exit 1; }
	[ -n "$$broken" ] || { echo "no incompatible changes of the Go API since $$tag"; exit 0; }
	printf '%s\n' "incompatible changes of the Go API since $$tag:" "$$broken"
	section=$$(awk '/^## /{n++} n==1' CHANGELOG.md); next=$$(sed -n '1s/^## *//p' <<<"$$section")
	IFS=. read -r major minor _ <<<"$${tag#v}"; IFS=. read -r next_major next_minor _ <<<"$$next"
	[ "$$next" = Unreleased ] || ((next_major > major || major == 0 && next_minor > minor)) || { echo "CHANGELOG.md begins with $$next, but $$tag allows no incompatible changes in it: undo them, or see CONTRIBUTING.md"; exit 1; }
	grep -q '^### Incompatible changes' <<<"$$section" || { echo "undo the incompatible changes, or list them in CHANGELOG.md below \"### Incompatible changes\" of $$next"; exit 1; }

# Where the targets below write.
OUT ?= bin
WID_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: wid
wid: ## static binaries of wid in bin/, for linux, darwin and windows on amd64 and arm64
	@for platform in $(WID_PLATFORMS); do
		os=$${platform%/*} arch=$${platform#*/} ext=
		[ $$os != windows ] || ext=.exe
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -trimpath -buildvcs=auto -ldflags='-s -w' -o $(OUT)/wid-$$os-$$arch$$ext ./cmd/wid
		echo $(OUT)/wid-$$os-$$arch$$ext
	done

# What make images builds, and for which platforms.
PROGRAMS ?= $(addprefix ./,$(wildcard cmd/*)) ./examples/controller
PLATFORMS ?= linux/amd64,linux/arm64
VERSION ?= $(shell git describe --tags --always --dirty)

.PHONY: images
images: ## images of all programs: pushed to KO_DOCKER_REPO, else as tarballs in bin/images; without a network: go -C test/images run . make images
	@mkdir -p $(OUT)/images; platforms=$(PLATFORMS); references=
	ko="go tool -modfile=tools/go.mod ko build --base-import-paths --tags=$(VERSION) --image-user=65532:65532 --sbom-dir=$(OUT)/images/sbom"
	if [ -n "$${KO_DOCKER_REPO:-}" ]; then
		references=$$($$ko --platform=$$platforms $(PROGRAMS))
	else
		for program in $(notdir $(PROGRAMS)); do references+=ghcr.io/workloadid/$$program:$(VERSION)$$'\n'; done
		for program in $(PROGRAMS); do for platform in $${platforms//,/ }; do
			KO_DOCKER_REPO=ghcr.io/workloadid $$ko --push=false --platform=$$platform --tarball=$(OUT)/images/$${program##*/}-$${platform##*/}.tar $$program >/dev/null
		done; done
	fi
	sed -nE 's|^(.*/)?([^/:@]+)[:@].*|\2 &|p' <<<"$$references" | tee $(OUT)/images/references

.PHONY: manifests
manifests: ## one YAML file a system in bin/manifests, with the images that make images listed
	@[ -s $(OUT)/images/references ] || { echo "$(OUT)/images/references names no images: run make images first"; exit 1; }
	mkdir -p bin $(OUT)/manifests; overlay=$$(mktemp -d bin/overlay.XXXXXX); trap 'rm -rf "$$overlay"' EXIT
	printf '%s\n' 'images: [{kind: ConfigMap, path: data/POD_IMAGE}]' >"$$overlay/images.yaml"
	replacements=
	while read -r program reference; do
		image=$${reference%@*} tag= digest=
		if [[ $$reference == *@* ]]; then digest=$${reference#*@}; fi
		if [[ $${image##*/} == *:* ]]; then tag=$${image##*:} image=$${image%:*}; fi
		for name in $$program ghcr.io/workloadid/$$program; do
			replacements+="- {name: '$$name', newName: '$$image', newTag: '$$tag', digest: '$$digest'}"$$'\n'
		done
	done <$(OUT)/images/references
	for base in config/*/kustomization.yaml; do
		system=$$(basename "$$(dirname "$$base")")
		printf '%s\n' "resources: [../../config/$$system]" 'configurations: [images.yaml]' images: "$$replacements" >"$$overlay/kustomization.yaml"
		go tool -modfile=tools/go.mod kustomize build "$$overlay" >$(OUT)/manifests/$$system.yaml
		echo $(OUT)/manifests/$$system.yaml
	done

.PHONY: release
release: ## everything that the release VERSION holds, in bin/release; pushes the images to KO_DOCKER_REPO
	@[ -n "$${KO_DOCKER_REPO:-}" ] || { echo "set KO_DOCKER_REPO, or run make release-dry-run"; exit 1; }
	parts=$(OUT)/release/parts; rm -rf $(OUT)/release; mkdir -p $$parts
	awk -v version='$(VERSION:v%=%)' '/^## /{found = $$2 == version; next} found' CHANGELOG.md >$(OUT)/notes.md
	grep -q . $(OUT)/notes.md || { echo "CHANGELOG.md has no section $(VERSION:v%=%)"; exit 1; }
	$(MAKE) --no-print-directory -j1 wid images manifests OUT=$$parts
	mv $$parts/wid-* $$parts/manifests/* $$parts/images/sbom/* $(OUT)/release; mv $$parts/images/references $(OUT)/release/images.txt; rm -r $$parts
	sed -E 's|^[^ ]+ (.*)@sha256:(.*)|\2  \1|; s|:[^:/]*$$||' $(OUT)/release/images.txt >$(OUT)/subjects.txt # for attestations
	cd $(OUT)/release; sha256sum -- * >../checksums.txt; mv ../checksums.txt .

.PHONY: release-dry-run
release-dry-run: ## the newest release of CHANGELOG.md in bin/release, with images in a registry that ends with it; needs no network
	@version=v$$(awk '/^## [0-9]/{print $$2; exit}' CHANGELOG.md)
	go -C test/images run . bash -c "KO_DOCKER_REPO=\$$LOOPBACK_REGISTRY/workloadid $(MAKE) --no-print-directory release VERSION=$$version"
	ls -l $(OUT)/release

.PHONY: test-wid
test-wid: ## the tests of wid alone, for other systems than Linux
	@go test ./cmd/wid/... ./cache/disk

.PHONY: vulncheck
vulncheck: ## known vulnerabilities in the code that the programs call; needs the network
	@go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

.PHONY: generate
generate: ## deep copies, CustomResourceDefinitions, config/hub and config/agent, and the table of metrics, from the code
	@gen="go tool -modfile=tools/go.mod controller-gen"
	for dir in registration/ocm registration/ocm/addon; do $$gen object crd:maxDescLen=0 paths=./$$dir output:crd:dir=$$dir; done
	$$gen object crd paths=./podidentity/api/v1alpha1 output:crd:dir=podidentity/api/v1alpha1
	$$gen object paths=./registration/ocm/addon/v1alpha1
	go run ./registration/manifests/internal/bases
	go -C test/monitoring test -count=1 -run TestGenerated . -update

.PHONY: bench
bench: ## side by side with the reference library, and the distance from a lower bound; writes bench/RESULTS.md
	@go -C bench run . -results RESULTS.md

.PHONY: bench-fleet-pods
bench-fleet-pods: ## time and memory of a pod identity server for FLEETPODS (10000) pods, on a real API server
	@assets=$$(go -C test/kube run .)
	KUBEBUILDER_ASSETS="$$assets" go test ./cmd/iam-credentials-provider -run '^$$' -bench BenchmarkFleet -benchtime 1x -timeout 0 -args -fleet.pods $${FLEETPODS:-10000}

.PHONY: soak
soak: ## load and faults for SOAKTIME (5m): 2,000 tenants of three clouds, a real API server as their issuer
	@assets=$$(go -C test/kube run .)
	KUBEBUILDER_ASSETS="$$assets" go -C test/soak test -count=1 -v -timeout 0 . -args -soak.time $(SOAKTIME) -soak.rate $(SOAKRATE)

.PHONY: bench-fleet
bench-fleet: ## memory, time and requests of hub and agent program, with FLEET (10000) simulated agents, then with token add-ons
	@assets=$$(go -C test/kube run .)
	KUBEBUILDER_ASSETS="$$assets" go -C test/soak test -count=1 -v -timeout 0 ./fleet -args -fleet.clusters $(FLEET)

MUTANTS ?=

.PHONY: mutants
mutants: ## whether the tests notice each of 300 changes of the product, which takes hours; MUTANTS='-j 2 -run ^auth' passes flags
	@assets=$$(go -C test/kube run .)
	KUBEBUILDER_ASSETS="$$assets" go -C tools run ./mutate $(MUTANTS)

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (1m)
	@for pkg in $$(go list ./...); do
		for target in $$(go test -list '^Fuzz' "$$pkg" | sed -n '/^Fuzz/p'); do
			echo "$$pkg $$target"
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg"
		done
	done

.ONESHELL:
