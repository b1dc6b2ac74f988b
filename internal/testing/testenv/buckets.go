package testenv

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/workloadid/workloadid/cloudtest"
)

// Bucket is a bucket of Google Cloud Storage.
type Bucket struct {
	// Objects are the contents by name.
	Objects map[string]string
	// Viewers are the members that may read the objects, as IAM policies name
	// them.
	Viewers []string
}

// Buckets serves the contents of objects with the JSON API: GET
// /storage/v1/b/<bucket>/o/<object>, also below /download.
type Buckets struct {
	gcp *cloudtest.GCP

	mu      sync.Mutex
	buckets map[string]Bucket
}

// NewBuckets serves Cloud Storage at its production host.
func NewBuckets(cloud *cloudtest.Cloud) *Buckets {
	b := &Buckets{gcp: cloud.GCP(), buckets: map[string]Bucket{}}
	cloud.Handle("storage.googleapis.com", b)
	return b
}

// Set creates or replaces a bucket.
func (b *Buckets) Set(name string, bucket Bucket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buckets[name] = bucket
}

func (b *Buckets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/download"), "/storage/v1/b/")
	name, object, _ := strings.Cut(path, "/o/")
	b.mu.Lock()
	bucket := b.buckets[name]
	b.mu.Unlock()
	caller, ok := b.gcp.Identity(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	content, known := bucket.Objects[object]
	switch {
	case !ok:
		http.Error(w, "Invalid Credentials", http.StatusUnauthorized)
	case !slices.ContainsFunc(caller.Members, func(m string) bool { return slices.Contains(bucket.Viewers, m) }):
		http.Error(w, "Permission denied", http.StatusForbidden)
	case !known:
		http.Error(w, "No such object", http.StatusNotFound)
	default:
		_, _ = w.Write([]byte(content)) // a client that has gone needs no answer
	}
}
