package cloudtest

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

// EKSCluster is a cluster in the API of EKS.
type EKSCluster struct {
	// ARN is arn:<partition>:eks:<region>:<account>:cluster/<name>.
	ARN string
	// Endpoint is the address of the API server. It is empty until EKS has
	// created the cluster.
	Endpoint string
	// CA is the CA in PEM. It is empty until EKS has created the cluster.
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

// eksRequest is a request to EKS: the parts of its path, its body and its
// caller.
type eksRequest struct {
	action, cluster, principal string
	body                       []byte

	caller            accessKey
	partition, region string
	clusterARN        string
}

// readEKSRequest leaves the action empty if EKS has no action for the method
// and path.
func readEKSRequest(r *http.Request) (q eksRequest) {
	const cluster, principal = 2, 4
	parts := strings.Split(r.URL.EscapedPath(), "/")
	if len(parts) > cluster && parts[cluster] != "" {
		q.cluster, parts[cluster] = parts[cluster], "*"
	}
	if len(parts) > principal && parts[principal] != "" {
		q.principal, _ = url.PathUnescape(parts[principal]) // no entry has a malformed name
		parts[principal] = "*"
	}
	q.action = map[string]string{
		"GET /clusters/*":                                  "DescribeCluster",
		"POST /clusters/*/access-entries":                  "CreateAccessEntry",
		"GET /clusters/*/access-entries/*":                 "DescribeAccessEntry",
		"POST /clusters/*/access-entries/*":                "UpdateAccessEntry",
		"DELETE /clusters/*/access-entries/*":              "DeleteAccessEntry",
		"GET /clusters/*/access-entries/*/access-policies": "ListAssociatedAccessPolicies",
	}[r.Method+" "+strings.Join(parts, "/")]
	return q
}

// serveEKS is the API of EKS. It has DescribeCluster, with the members that
// clients need to connect, and ListAssociatedAccessPolicies. It has all actions
// for access entries except ListAccessEntries.
func (a *AWS) serveEKS(w http.ResponseWriter, r *http.Request, host string) {
	q, complete := readEKSRequest(r), true
	if r.Method == http.MethodPost {
		q.body, complete = readBody(w, r)
	}
	call := Call{Service: "eks", Action: firstOf(q.action, r.Method+" "+r.URL.Path), Host: host,
		Parameters: map[string]string{"name": q.cluster, "principalArn": q.principalARN()}}
	fault, proceed := a.cloud.begin(w, r, call, func(f Fault) {
		a.failEKS(w, r, nil, &awsError{f.Status, f.Code, f.Message})
	})
	if !proceed {
		return
	}
	if !complete {
		a.failEKS(w, r, fault, refuse(http.StatusRequestEntityTooLarge, "RequestEntityTooLargeException",
			"Request size exceeded"))
		return
	}
	out, err := a.answerEKS(r, host, q)
	if err != nil {
		a.failEKS(w, r, fault, err)
		return
	}
	eksHeader(w)
	sendJSON(a.cloud, w, r, fault, http.StatusOK, "application/json", out)
}

func (a *AWS) answerEKS(r *http.Request, host string, q eksRequest) (any, *awsError) {
	actions := map[string]func(eksRequest) (any, *awsError){"DescribeCluster": a.describeCluster,
		"CreateAccessEntry": a.createAccessEntry, "DescribeAccessEntry": a.describeAccessEntry,
		"UpdateAccessEntry": a.updateAccessEntry,
		"DeleteAccessEntry": a.deleteAccessEntry, "ListAssociatedAccessPolicies": a.listAccessPolicies}
	answer := actions[q.action]
	if answer == nil {
		return nil, refuse(http.StatusNotFound, "UnknownOperationException", "")
	}
	endpoint, _ := eksEndpoint(host)
	caller, err := a.authenticate(signedRequest{r, q.body, "eks", endpoint.Region})
	if err != nil {
		return nil, modelled(err, http.StatusForbidden)
	}
	partition, _ := awsname.PartitionOf(endpoint.Region)
	q.caller, q.partition, q.region = caller, partition.Name, endpoint.Region
	q.clusterARN = fmt.Sprintf("arn:%s:eks:%s:%s:cluster/%s", q.partition, q.region, caller.account, q.cluster)
	if err := a.authorizeEKS(q); err != nil {
		return nil, err
	}
	return answer(q)
}

// authorizeEKS checks the permissions of the action. Creating an access entry
// with tags also requires eks:TagResource.
func (a *AWS) authorizeEKS(q eksRequest) *awsError {
	resource, actions := q.resource(), []string{"eks:" + q.action}
	if in, err := q.input(); err == nil && len(in.Tags) > 0 {
		actions = append(actions, "eks:TagResource")
	}
	for _, action := range actions {
		if !a.authorized(q.caller, action, resource) {
			return refuse(http.StatusForbidden, "AccessDeniedException",
				"User: %s is not authorized to perform: %s on resource: %s", q.caller.ARN, action, resource)
		}
	}
	return nil
}

func noSuchCluster(name string) *awsError {
	return refuse(http.StatusNotFound, "ResourceNotFoundException", "No cluster found for name: %s.", name)
}

func (a *AWS) describeCluster(q eksRequest) (any, *awsError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.clusters[q.clusterARN]
	if !ok {
		return nil, noSuchCluster(q.cluster)
	}
	return map[string]any{"cluster": c.describe(q.cluster)}, nil
}

// describe leaves out empty members, as EKS does while it creates a cluster.
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

// eksHeader adds the headers of API Gateway.
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

// readEKSQuery accepts only the known parameters, each once. The names in the
// result are in lower case.
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
