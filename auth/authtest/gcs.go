package authtest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// GCSBucket is a bucket of Cloud Storage.
type GCSBucket struct {
	// Objects are the contents by name.
	Objects map[string]string
	// Viewers are the members who may read and list objects.
	Viewers []string
}

// SetBucket creates a bucket, or replaces it.
func (g *GCP) SetBucket(name string, bucket GCSBucket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.buckets[name] = bucket
}

// gcsError is an error of the JSON API of Cloud Storage, which is older than AIP-193.
type gcsError struct {
	status          int
	reason, message string
}

func (e *gcsError) body() []byte {
	return googleJSON(map[string]any{"error": map[string]any{"code": e.status, "message": e.message,
		"errors": []any{map[string]string{"message": e.message, "domain": "global", "reason": e.reason}}}})
}

// serveStorage reads and lists objects with the JSON API, v1, and reads them with the XML API at /<bucket>/<object>. It does
// not write, has no generations, ranges and pages, and knows nothing of a bucket but its objects.
func (g *GCP) serveStorage(w http.ResponseWriter, r *http.Request, host string) {
	bucket, object, isList := gcsPath(r)
	action := "objects.get"
	if isList {
		action = "objects.list"
	}
	call := Call{Service: "storage", Action: action, Host: host,
		Parameters: map[string]string{"bucket": bucket, "object": object}}
	fault, ok := g.cloud.begin(w, r, call, func(f Fault) {
		g.send(w, r, nil, f.Status, googleContentType, (&gcsError{f.Status, f.Code, f.Message}).body())
	})
	if !ok {
		return
	}
	b, refused := g.bucketFor(r, bucket, "storage."+action)
	if refused != nil {
		g.send(w, r, fault, refused.status, googleContentType, refused.body())
		return
	}
	if isList {
		g.send(w, r, fault, http.StatusOK, googleContentType, googleJSON(b.list(bucket, r.URL.Query().Get("prefix"))))
		return
	}
	content, ok := b.Objects[object]
	switch {
	case !ok:
		missing := &gcsError{http.StatusNotFound, "notFound", fmt.Sprintf("No such object: %s/%s", bucket, object)}
		g.send(w, r, fault, missing.status, googleContentType, missing.body())
	case strings.HasPrefix(r.URL.Path, "/storage/v1/") && r.URL.Query().Get("alt") != "media":
		g.send(w, r, fault, http.StatusOK, googleContentType, googleJSON(describeGCSObject(bucket, object, content)))
	default:
		g.send(w, r, fault, http.StatusOK, "application/octet-stream", []byte(content))
	}
}

// gcsPath understands /storage/v1/b/<bucket>/o[/<object>], the same below /download, and /<bucket>/<object>.
func gcsPath(r *http.Request) (bucket, object string, isList bool) {
	path := strings.TrimPrefix(r.URL.Path, "/download")
	if rest, ok := strings.CutPrefix(path, "/storage/v1/b/"); ok {
		bucket, rest, _ = strings.Cut(rest, "/o")
		object = strings.TrimPrefix(rest, "/")
		return bucket, object, object == ""
	}
	bucket, object, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return bucket, object, false
}

func (g *GCP) bucketFor(r *http.Request, name, permission string) (GCSBucket, *gcsError) {
	caller, err := g.bearer(r, "https://www.googleapis.com/auth/devstorage.read_only",
		"https://www.googleapis.com/auth/devstorage.read_write", "https://www.googleapis.com/auth/devstorage.full_control")
	switch {
	case err != nil && err.status == http.StatusUnauthorized:
		return GCSBucket{}, &gcsError{err.status, "authError", "Invalid Credentials"}
	case err != nil:
		return GCSBucket{}, &gcsError{err.status, "insufficientPermissions", err.message}
	}
	g.mu.Lock()
	b, ok := g.buckets[name]
	g.mu.Unlock()
	switch {
	case !ok:
		return b, &gcsError{http.StatusNotFound, "notFound", "The specified bucket does not exist."}
	case !caller.isOneOf(b.Viewers):
		return b, &gcsError{http.StatusForbidden, "forbidden", fmt.Sprintf(
			"%s does not have %s access to the Google Cloud Storage object. "+
				"Permission '%s' denied on resource (or it may not exist).",
			caller.name(), permission, permission)}
	}
	return b, nil
}

func (id GCPIdentity) name() string {
	if id.Email != "" || len(id.Members) == 0 {
		return id.Email
	}
	return id.Members[0]
}

func (b GCSBucket) list(bucket, prefix string) map[string]any {
	var names []string
	for name := range b.Objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	items := make([]any, 0, len(names))
	for _, name := range names {
		items = append(items, describeGCSObject(bucket, name, b.Objects[name]))
	}
	return map[string]any{"kind": "storage#objects", "items": items}
}

func describeGCSObject(bucket, name, content string) map[string]any {
	return map[string]any{"kind": "storage#object", "bucket": bucket, "name": name, "size": strconv.Itoa(len(content))}
}
