package cloudtest

import (
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/awsname"
)

// S3Bucket is a bucket of S3 or of a compatible service, such as MinIO.
type S3Bucket struct {
	// Account owns the bucket. Its principals need permissions as for other
	// services: s3:GetObject, s3:PutObject and s3:ListBucket. Without
	// s3:ListBucket, a missing object answers like a forbidden one.
	Account string
	// Region is the region that signatures name.
	Region string
	// Host is the host of a compatible service, with its port unless it is 443.
	// Paths begin with the bucket there. Empty: S3.
	Host string
	// Public lets anonymous requests read objects, as a bucket policy does.
	Public bool
	// Accounts are other accounts that the bucket policy trusts to read and
	// write.
	Accounts []string
}

type s3Bucket struct {
	S3Bucket
	objects map[string]s3Object
}

type s3Object struct {
	content []byte
	header  http.Header
}

// SetBucket creates a bucket, or changes it and keeps its objects.
func (a *AWS) SetBucket(name string, bucket S3Bucket) {
	bucket.Host = strings.ToLower(bucket.Host)
	a.mu.Lock()
	defer a.mu.Unlock()
	objects := map[string]s3Object{}
	if old := a.buckets[name]; old != nil {
		objects = old.objects
	}
	a.buckets[name] = &s3Bucket{bucket, objects}
}

// isS3Host recognizes s3.<region>.<suffix>, <bucket>.s3.<region>.<suffix> and
// the hosts of compatible services.
func (a *AWS) isS3Host(host string) bool {
	_, _, ok := s3Endpoint(host)
	return ok || a.isOtherS3(host)
}

func (a *AWS) isOtherS3(host string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for b := range maps.Values(a.buckets) {
		if b.Host != "" && b.Host == strings.ToLower(host) {
			return true
		}
	}
	return false
}

func s3Endpoint(host string) (bucket, region string, ok bool) {
	endpoint, ok := awsname.ParseEndpoint(host, "s3")
	if i := strings.LastIndex(host, ".s3."); !ok && i > 0 {
		bucket = host[:i]
		endpoint, ok = awsname.ParseEndpoint(host[i+1:], "s3")
	}
	return bucket, endpoint.Region, ok
}

// s3Request is a request for an object, with its bucket if it exists at the
// host.
type s3Request struct {
	*http.Request
	name, key string
	region    string // of the host; empty for compatible services
	body      []byte
	bucket    *s3Bucket
}

func (a *AWS) readS3(r *http.Request, host string) s3Request {
	name, region, known := s3Endpoint(host)
	path := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name, path, _ = strings.Cut(path, "/")
	}
	q := s3Request{Request: r, name: name, key: path, region: region}
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.buckets[name]; b != nil && (known && b.Host == "" || b.Host == strings.ToLower(r.Host)) {
		q.bucket = b
	}
	return q
}

// serveS3 is the REST API of S3 with GetObject, HeadObject and PutObject.
func (a *AWS) serveS3(w http.ResponseWriter, r *http.Request, host string) {
	if r.Method == http.MethodPost && r.URL.Path == "/" && (a.isOtherSTS(host) || a.isOtherSTS(r.Host)) {
		a.serveSTS(w, r, host) // MinIO serves both at one address
		return
	}
	const maxObject = 2 << 20
	q, err := a.readS3(r, host), error(nil)
	action := map[string]string{http.MethodGet: "GetObject", http.MethodHead: "HeadObject",
		http.MethodPut: "PutObject"}[r.Method]
	fault, ok := a.cloud.begin(w, r, Call{Service: "s3", Action: firstOf(action, r.Method+" "+r.URL.Path), Host: host,
		Parameters: map[string]string{"Bucket": q.name, "Key": q.key}},
		func(f Fault) { a.failS3(w, q, nil, &awsError{f.Status, f.Code, f.Message}) })
	if !ok {
		return
	}
	if q.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxObject)); err != nil {
		if !errors.As(err, new(*http.MaxBytesError)) {
			panic(http.ErrAbortHandler)
		}
		a.failS3(w, q, fault, refuse(http.StatusBadRequest, "EntityTooLarge",
			"Your proposed upload exceeds the maximum allowed size"))
		return
	}
	object, refused := a.answerS3(q, action)
	if refused != nil {
		a.failS3(w, q, fault, refused)
		return
	}
	a.s3Header(w)
	maps.Copy(w.Header(), object.header)
	fault.send(w, r, a.cloud.closing, http.StatusOK, object.content)
}

func (a *AWS) answerS3(q s3Request, action string) (s3Object, *awsError) {
	if err := a.authorizeS3(q, action); err != nil {
		return s3Object{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	object, exists := q.bucket.objects[q.key]
	if action != "PutObject" {
		if !exists {
			return object, noSuchKey()
		}
		return object, nil
	}
	if err := q.checkConditions(object, exists); err != nil {
		return object, err
	}
	etag := http.Header{"Etag": {`"` + hexSum(q.body)[:32] + `"`}}
	stored := s3Object{q.body, etag.Clone()}
	for _, name := range []string{"Content-Type", "Cache-Control"} {
		if value := q.Header.Get(name); value != "" {
			stored.header.Set(name, value)
		}
	}
	q.bucket.objects[q.key] = stored
	return s3Object{header: etag}, nil
}

func noSuchKey() *awsError {
	return refuse(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
}

// checkConditions returns S3's answer to a conditional write.
func (q s3Request) checkConditions(object s3Object, exists bool) *awsError {
	match, none := q.Header.Get("If-Match"), q.Header.Get("If-None-Match")
	switch {
	case none != "" && none != "*":
		return refuse(http.StatusNotImplemented, "NotImplemented",
			"A header you provided implies functionality that is not implemented")
	case match != "" && !exists:
		return noSuchKey()
	case none != "" && exists, match != "" && match != object.header.Get("Etag"):
		return refuse(http.StatusPreconditionFailed, "PreconditionFailed",
			"At least one of the pre-conditions you specified did not hold")
	}
	return nil
}

// authorizeS3 checks the bucket, its owner, the signature and the permissions.
func (a *AWS) authorizeS3(q s3Request, action string) *awsError {
	owner := q.Header.Get("X-Amz-Expected-Bucket-Owner")
	anonymous := q.Header.Get("Authorization") == "" && q.URL.Query().Get("X-Amz-Algorithm") == ""
	var caller accessKey
	if !anonymous {
		region := q.region
		if q.bucket != nil && q.bucket.Host != "" {
			region = q.bucket.Region
		}
		var err *awsError
		if caller, err = a.authenticate(signedRequest{q.Request, q.body, "s3", region}); err != nil {
			return s3Refusal(err)
		}
	}
	switch b := q.bucket; {
	case action == "" || q.key == "":
		return refuse(http.StatusMethodNotAllowed, "MethodNotAllowed",
			"The specified method is not allowed against this resource.")
	case b == nil:
		return refuse(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
	case b.Host == "" && q.region != b.Region:
		return refuse(http.StatusMovedPermanently, "PermanentRedirect",
			"The bucket you are attempting to access must be addressed using the specified endpoint. Please send all future requests to this endpoint.")
	case owner != "" && owner != b.Account:
		return s3Denied()
	case anonymous:
		if !b.Public || action == "PutObject" {
			return s3Denied()
		}
		return nil
	}
	return a.permitS3(q, caller, action)
}

func (a *AWS) permitS3(q s3Request, caller accessKey, action string) *awsError {
	bucket := "arn:aws:s3:::" + q.name
	if caller.account != q.bucket.Account && !oneOf(q.bucket.Accounts, caller.account) ||
		!a.authorized(caller, "s3:"+strings.Replace(action, "Head", "Get", 1), bucket+"/"+q.key) {
		return s3Denied()
	}
	a.mu.Lock()
	_, exists := q.bucket.objects[q.key]
	a.mu.Unlock()
	if !exists && action != "PutObject" && !a.authorized(caller, "s3:ListBucket", bucket) {
		return s3Denied()
	}
	return nil
}

func s3Denied() *awsError { return refuse(http.StatusForbidden, "AccessDenied", "Access Denied") }

// s3Refusal translates the codes of the query protocol into S3's.
func s3Refusal(err *awsError) *awsError {
	switch {
	case strings.Contains(err.message, "valid region"), err.code == "IncompleteSignature":
		return refuse(http.StatusBadRequest, "AuthorizationHeaderMalformed",
			"The authorization header is malformed; the region is wrong")
	case err.code == "InvalidClientTokenId":
		return refuse(http.StatusForbidden, "InvalidAccessKeyId",
			"The AWS Access Key Id you provided does not exist in our records.")
	case err.code == "ExpiredToken":
		return refuse(http.StatusBadRequest, "ExpiredToken", "The provided token has expired.")
	case strings.Contains(err.message, "Signature expired"), strings.Contains(err.message, "not yet current"):
		return refuse(http.StatusForbidden, "RequestTimeTooSkewed",
			"The difference between the request time and the current time is too large.")
	}
	return err
}

func (a *AWS) s3Header(w http.ResponseWriter) {
	w.Header().Set("x-amz-request-id", strings.ToUpper(strings.ReplaceAll(uuid.NewString(), "-", "")[:16]))
	w.Header().Set("Date", a.cloud.time().UTC().Format(http.TimeFormat))
}

func (a *AWS) failS3(w http.ResponseWriter, q s3Request, fault *Fault, err *awsError) {
	body, _ := xml.Marshal(struct { // strings always encode
		XMLName                        xml.Name `xml:"Error"`
		Code, Message, Key, BucketName string
	}{Code: err.code, Message: err.message, Key: q.key, BucketName: q.name})
	a.s3Header(w)
	if q.bucket != nil {
		w.Header().Set("x-amz-bucket-region", q.bucket.Region)
	}
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(xml.Header)+len(body)))
	if fault != nil && fault.Rewrite != nil {
		w.Header().Del("Content-Length")
	}
	fault.send(w, q.Request, a.cloud.closing, err.status, append([]byte(xml.Header), body...))
}
