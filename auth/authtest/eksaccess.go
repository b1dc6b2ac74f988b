package authtest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/internal/awsname"
)

// EKSAccessEntry is an access entry of an EKS cluster: what a role is in it.
type EKSAccessEntry struct {
	// Type is "STANDARD" if it is empty.
	Type string
	// Username is made from the role's name if it is empty.
	Username string
	// Groups are the groups in the cluster.
	Groups []string
	// Policies are the names of access policies, such as AmazonEKSViewPolicy, for the whole cluster.
	Policies []string
}

// SetEKSAccessEntry lets a role into a cluster, or changes what it is there. It is for those who ask EKS; VerifyEKSToken
// does not look at it.
func (a *AWS) SetEKSAccessEntry(clusterARN, roleARN string, entry EKSAccessEntry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries[clusterARN+" "+roleARN] = entry
}

// RemoveEKSAccessEntry undoes SetEKSAccessEntry.
func (a *AWS) RemoveEKSAccessEntry(clusterARN, roleARN string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.entries, clusterARN+" "+roleARN)
}

// accessRequest is GET /clusters/<cluster>/access-entries/<ARN>, with /access-policies behind it or not.
type accessRequest struct{ action, cluster, principal string }

func readAccessRequest(r *http.Request) (accessRequest, bool) {
	const plain, policies = 5, 6
	parts := strings.Split(r.URL.EscapedPath(), "/")
	if r.Method != http.MethodGet || len(parts) < plain || parts[1] != "clusters" || parts[3] != "access-entries" {
		return accessRequest{}, false
	}
	principal, err := url.PathUnescape(parts[4])
	a := accessRequest{"DescribeAccessEntry", parts[2], principal}
	if len(parts) == policies && parts[5] == "access-policies" {
		a.action = "ListAssociatedAccessPolicies"
	} else if len(parts) != plain {
		return a, false
	}
	return a, err == nil
}

// answerAccess has no pages, and no entries that EKS makes itself.
func (a *AWS) answerAccess(r *http.Request, host string, asked accessRequest) (any, *awsError) {
	endpoint, _ := eksEndpoint(host)
	caller, err := a.authenticate(signedRequest{r, nil, "eks", endpoint.Region})
	if err != nil {
		return nil, modelled(err, http.StatusForbidden)
	}
	partition, _ := awsname.PartitionOf(endpoint.Region)
	arn := fmt.Sprintf("arn:%s:eks:%s:%s:cluster/%s", partition.Name, endpoint.Region, caller.account, asked.cluster)
	if a.isDenied(caller.Identity, "eks:"+asked.action) {
		return nil, refuse(http.StatusForbidden, "AccessDeniedException",
			"User: %s is not authorized to perform: eks:%s on resource: %s", caller.ARN, asked.action, arn)
	}
	a.mu.Lock()
	cluster, known := a.clusters[arn]
	entry, exists := a.entries[arn+" "+asked.principal]
	a.mu.Unlock()
	switch {
	case !known:
		return nil, refuse(http.StatusNotFound, "ResourceNotFoundException", "No cluster found for name: %s.", asked.cluster)
	case cluster.AuthenticationMode == "CONFIG_MAP":
		return nil, refuse(http.StatusBadRequest, "InvalidRequestException",
			"The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.")
	case !exists:
		return nil, refuse(http.StatusNotFound, "ResourceNotFoundException",
			"The specified principalArn could not be found. You can view your available principals with 'list-access-entries'.")
	case asked.action == "DescribeAccessEntry":
		return map[string]any{"accessEntry": entry.describe(asked)}, nil
	}
	policies := []any{}
	for _, p := range entry.Policies {
		policies = append(policies, map[string]any{"policyArn": "arn:" + partition.Name + ":eks::aws:cluster-access-policy/" + p,
			"accessScope": map[string]any{"type": "cluster", "namespaces": []string{}}})
	}
	return map[string]any{"clusterName": asked.cluster, "principalArn": asked.principal,
		"associatedAccessPolicies": policies}, nil
}

func (e EKSAccessEntry) describe(asked accessRequest) map[string]any {
	parts := strings.SplitN(asked.principal, ":", 6)
	name := asked.principal[strings.LastIndexByte(asked.principal, '/')+1:]
	user := e.Username
	if user == "" {
		user = fmt.Sprintf("arn:%s:sts::%s:assumed-role/%s/{{SessionName}}", parts[1], parts[4], name)
	}
	return map[string]any{"clusterName": asked.cluster, "principalArn": asked.principal, "type": firstOf(e.Type, "STANDARD"),
		"username": user, "kubernetesGroups": append([]string{}, e.Groups...)}
}
