// Tries podidentity/proxy with SDKs that workloadid itself has no use for. A module of its own, so that importing
// workloadid brings none of them. Run it with: go -C podidentity/proxy/interop test ./...
module github.com/workloadid/workloadid/podidentity/proxy/interop

go 1.26.0

require (
	github.com/minio/minio-go/v7 v7.4.0
	github.com/workloadid/workloadid v0.0.0
)

require (
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/minio/md5-simd v1.1.2 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	gopkg.in/ini.v1 v1.67.3 // indirect
)

replace github.com/workloadid/workloadid => ../../..
