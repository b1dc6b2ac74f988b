SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
FUZZTIME ?= 1m
MODULES := . tools test/kube test/clouds test/monitoring test/soak auth/exchange/interop auth/podidentity/proxy/interop bench test/node
SOAKTIME ?= 5m
SOAKRATE ?= 2000
# Those whose tests run with the main module's.
TESTED := . test/clouds test/monitoring auth/exchange/interop auth/podidentity/proxy/interop bench
# Built from source with the versions that tools/go.mod pins.
GOLANGCI_LINT := go tool -modfile=tools/go.mod golangci-lint

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: test
test: ## all tests with the race detector, those with a real control plane included; none may be skipped; lint does the vetting
	@start=$$SECONDS; assets=$$(go -C test/kube run .); echo "control plane: $$((SECONDS - start)) s"
	export KUBEBUILDER_ASSETS="$$assets"; failed= race=-race
	[ "$$(go env CGO_ENABLED)" = 1 ] || { race=; echo "no C compiler: without the race detector"; [ -z "$${CI:-}" ]; }
	{ for m in $(TESTED); do go -C $$m test $$race -p 3 -timeout 40m -vet=off -ldflags=-w -json ./... || failed=1; done; [ -z "$$failed" ]; } | go -C tools run ./testsum

.PHONY: test-node
test-node: ## all programs on a real node, in namespaces of its own; needs root and packages of Debian, and says which
	@go -C test/node run . -possible
	export KUBEBUILDER_ASSETS="$$(go -C test/kube run .)" NODE_ASSETS="$$(go -C test/kube run . -node)"
	go -C test/node run . -run '$(RUN)'

.PHONY: test-newest
test-newest: ## the tests with the newest Kubernetes libraries and cloud SDKs
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT
	cp go.mod go.sum "$$dir"; mod="-modfile=$$dir/go.mod"
	go get $$mod sigs.k8s.io/controller-runtime@latest $$(go list -m -f '{{if not .Indirect}}{{.Path}}@latest{{end}}' all | grep -E '^(k8s.io|github.com/aws|github.com/Azure|cloud.google.com|github.com/google/go-containerregistry)')
	go mod tidy $$mod
	assets=$$(go -C test/kube run .)
	KUBEBUILDER_ASSETS="$$assets" go test $$mod -race -timeout 40m -json ./... | go -C tools run ./testsum

.PHONY: lint
lint: ## formatting, vet, linters, tidy modules
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt would change: $$unformatted"; exit 1; }
	for m in $(MODULES); do go -C $$m mod tidy -diff; go -C $$m vet $$([ $$m = tools ] && echo ./testsum || echo ./...); done
	! git grep -nE '(^|[^a-zA-Z.])/(root|home|Users)/[a-z]' -- ':!Makefile' || { echo "a path of somebody's machine"; exit 1; }
	$(GOLANGCI_LINT) run ./...

.PHONY: wid
wid: ## static binaries of wid in bin/, for linux, darwin and windows on amd64 and arm64
	@for os in linux darwin windows; do
		for arch in amd64 arm64; do
			ext=; [ $$os != windows ] || ext=.exe
			CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -trimpath -buildvcs=auto -o bin/wid-$$os-$$arch$$ext ./cmd/wid
			echo bin/wid-$$os-$$arch$$ext
		done
	done

.PHONY: generate
generate: ## deep copies and CustomResourceDefinitions, from the types
	@gen="go tool -modfile=tools/go.mod controller-gen"
	for dir in registration/ocm registration/ocm/addon auth/podidentity/api/v1alpha1; do $$gen object crd:maxDescLen=0 paths=./$$dir output:crd:dir=$$dir; done
	$$gen object paths=./registration/ocm/addon/v1alpha1

.PHONY: bench
bench: ## side by side with the reference library, and the distance from the floor; writes bench/RESULTS.md
	@go -C bench run . -results RESULTS.md

.PHONY: soak
soak: ## load and faults for SOAKTIME (5m): 2,000 tenants of three clouds, a real API server as their issuer
	@assets=$$(go -C test/kube run .)
	KUBEBUILDER_ASSETS="$$assets" go -C test/soak test -count=1 -v -timeout 0 . -args -soak.time $(SOAKTIME) -soak.rate $(SOAKRATE)

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (1m)
	@for pkg in $$(go list ./...); do
		for target in $$(go test -list '^Fuzz' "$$pkg" | sed -n '/^Fuzz/p'); do
			echo "$$pkg $$target"
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg"
		done
	done

.ONESHELL:
