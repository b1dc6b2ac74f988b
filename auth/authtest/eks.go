package authtest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/awsname"
)

// EKSCluster is what DescribeCluster says of a cluster.
type EKSCluster struct {
	// ARN is arn:<partition>:eks:<region>:<account>:cluster/<name>.
	ARN string
	// Endpoint is the address of the API server. Empty: there is none yet.
	Endpoint string
	// CA is the certificate authority in PEM. Empty: there is none yet.
	CA []byte
	// Status is "ACTIVE" if it is empty.
	Status string
	// AuthenticationMode is "API_AND_CONFIG_MAP" if it is empty.
	AuthenticationMode string
}

// SetEKSCluster creates a cluster, or changes it.
func (a *AWS) SetEKSCluster(c EKSCluster) {
	c.Status = firstOf(c.Status, "ACTIVE")
	c.AuthenticationMode = firstOf(c.AuthenticationMode, "API_AND_CONFIG_MAP")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clusters[c.ARN] = c
}

func eksEndpoint(host string) (awsname.Endpoint, bool) {
	return awsname.ParseEndpoint(host, "eks", "fips.eks", "eks-fips")
}

func isEKSHost(host string) bool {
	_, ok := eksEndpoint(host)
	return ok
}

// serveEKS is the API of EKS. Of its actions it has DescribeCluster, with the members that clients need to connect,
// DescribeAccessEntry and ListAssociatedAccessPolicies.
func (a *AWS) serveEKS(w http.ResponseWriter, r *http.Request, host string) {
	action := r.Method + " " + r.URL.Path
	name, ok := strings.CutPrefix(r.URL.Path, "/clusters/")
	known := ok && r.Method == http.MethodGet && name != "" && !strings.Contains(name, "/")
	if known {
		action = "DescribeCluster"
	}
	access, isAccess := readAccessRequest(r)
	if isAccess {
		action, name = access.action, access.cluster
	}
	call := Call{Service: "eks", Action: action, Host: host, Parameters: map[string]string{"name": name}}
	fault, proceed := a.cloud.begin(w, r, call, func(f Fault) { a.failEKS(w, r, nil, &awsError{f.Status, f.Code, f.Message}) })
	if !proceed {
		return
	}
	var out any
	var err *awsError
	switch {
	case known:
		out, err = a.describeCluster(r, host, name)
	case isAccess:
		out, err = a.answerAccess(r, host, access)
	default:
		err = refuse(http.StatusNotFound, "UnknownOperationException", "")
	}
	if err != nil {
		a.failEKS(w, r, fault, err)
		return
	}
	eksHeader(w)
	sendJSON(a.cloud, w, r, fault, http.StatusOK, "application/json", out)
}

func (a *AWS) describeCluster(r *http.Request, host, name string) (any, *awsError) {
	endpoint, _ := eksEndpoint(host)
	caller, err := a.authenticate(signedRequest{r, nil, "eks", endpoint.Region})
	if err != nil {
		return nil, modelled(err, http.StatusForbidden)
	}
	partition, _ := awsname.PartitionOf(endpoint.Region)
	arn := fmt.Sprintf("arn:%s:eks:%s:%s:cluster/%s", partition.Name, endpoint.Region, caller.account, name)
	if a.isDenied(caller.Identity, "eks:DescribeCluster") {
		return nil, refuse(http.StatusForbidden, "AccessDeniedException",
			"User: %s is not authorized to perform: eks:DescribeCluster on resource: %s", caller.ARN, arn)
	}
	a.mu.Lock()
	c, ok := a.clusters[arn]
	a.mu.Unlock()
	if !ok {
		return nil, refuse(http.StatusNotFound, "ResourceNotFoundException", "No cluster found for name: %s.", name)
	}
	return map[string]any{"cluster": c.describe(name)}, nil
}

// describe leaves out what there is none of, as EKS does while it creates a cluster.
func (c EKSCluster) describe(name string) map[string]any {
	d := map[string]any{"name": name, "arn": c.ARN, "status": c.Status, "version": "1.36",
		"certificateAuthority": map[string]any{}, "accessConfig": map[string]any{"authenticationMode": c.AuthenticationMode}}
	if c.Endpoint != "" {
		d["endpoint"] = c.Endpoint
	}
	if len(c.CA) > 0 {
		d["certificateAuthority"] = map[string]any{"data": base64.StdEncoding.EncodeToString(c.CA)}
	}
	return d
}

func (a *AWS) failEKS(w http.ResponseWriter, r *http.Request, fault *Fault, err *awsError) {
	eksHeader(w)
	w.Header().Set("x-amzn-ErrorType", err.code)
	sendJSON(a.cloud, w, r, fault, err.status, "application/json", map[string]string{"message": err.message})
}

// eksHeader adds what API Gateway puts before EKS.
func eksHeader(w http.ResponseWriter) {
	w.Header().Set("x-amz-apigw-id", randomName(16))
	w.Header().Set("x-amzn-trace-id", "Root=1-"+strings.ToLower(randomName(8)))
}

const (
	eksTokenPrefix = "k8s-aws-v1."
	maxEKSToken    = 4096
	maxEKSExpires  = 900
	eksTokenLife   = 15 * time.Minute
)

// VerifyEKSToken does what the webhook in an EKS cluster does with a bearer token: it looks at the signed request in it by
// the rules of aws-iam-authenticator, sends it to STS with the cluster's name, and says whose it is. What that identity may
// do in the cluster (access entries) is not imitated.
func (a *AWS) VerifyEKSToken(clusterARN, token string) (Identity, error) {
	parts := strings.SplitN(clusterARN, ":", 6)
	if len(parts) != 6 {
		return Identity{}, fmt.Errorf("authtest: %q is not the ARN of a cluster", clusterARN)
	}
	u, err := readEKSToken(token, parts[1], a.cloud.time())
	if err != nil {
		return Identity{}, fmt.Errorf("input token was not properly formatted: %w", err)
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{
		"X-K8s-Aws-Id": {strings.TrimPrefix(parts[5], "cluster/")}, "Accept": {"application/json"}}}
	caller, refused := a.authenticate(signedRequest{r, nil, "sts", awsname.STSRegion(u.Host)})
	if refused != nil {
		return Identity{}, fmt.Errorf("sts getCallerIdentity failed: error from AWS (expected 200, got %d): %w",
			refused.status, refused)
	}
	return caller.Identity, nil
}

func readEKSToken(token, partition string, now time.Time) (*url.URL, error) {
	if len(token) > maxEKSToken {
		return nil, errors.New("token is too large")
	}
	encoded, ok := strings.CutPrefix(token, eksTokenPrefix)
	if !ok {
		return nil, fmt.Errorf("token is missing expected %q prefix", eksTokenPrefix)
	}
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(string(decoded))
	if err != nil {
		return nil, err
	}
	region, known := awsname.PartitionOf(awsname.STSRegion(u.Host))
	switch {
	case u.Scheme != "https":
		return nil, fmt.Errorf("unexpected scheme %q in pre-signed URL", u.Scheme)
	case !awsname.IsSTSHost(u.Host) || !known || region.Name != partition:
		return nil, fmt.Errorf("unexpected hostname %q in pre-signed URL", u.Host)
	case u.Path != "/":
		return nil, errors.New("unexpected path in pre-signed URL")
	}
	q, err := readEKSQuery(u)
	if err != nil {
		return nil, err
	}
	return u, checkEKSQuery(q, now)
}

// readEKSQuery allows each parameter once, and no others. The names are in lower case then.
func readEKSQuery(u *url.URL) (map[string]string, error) {
	allowed := []string{"action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires",
		"x-amz-security-token", "x-amz-signature", "x-amz-signedheaders"}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("malformed query parameter")
	}
	q := map[string]string{}
	for name, list := range values {
		lower := strings.ToLower(name)
		if _, twice := q[lower]; twice || len(list) != 1 {
			return nil, errors.New("query parameter with multiple values not supported")
		}
		if !slices.Contains(allowed, lower) {
			return nil, fmt.Errorf("non-whitelisted query parameter %q", name)
		}
		q[lower] = list[0]
	}
	return q, nil
}

func checkEKSQuery(q map[string]string, now time.Time) error {
	if q["action"] != "GetCallerIdentity" {
		return errors.New("unexpected action parameter in pre-signed URL")
	}
	if !slices.Contains(strings.Split(q["x-amz-signedheaders"], ";"), "x-k8s-aws-id") {
		return errors.New("client did not sign the x-k8s-aws-id header in the pre-signed URL")
	}
	if n, err := strconv.Atoi(q["x-amz-expires"]); err != nil || n < 0 || n > maxEKSExpires {
		return errors.New("invalid X-Amz-Expires parameter in pre-signed URL")
	}
	date, err := time.Parse(sigDate, q["x-amz-date"])
	if err != nil {
		return errors.New("X-Amz-Date parameter must be present in pre-signed URL")
	}
	if now.After(date.Add(eksTokenLife)) {
		return fmt.Errorf("X-Amz-Date parameter is expired (%.f minute expiration) %s", eksTokenLife.Minutes(), date)
	}
	return nil
}
