package cloudtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// EKSAccessEntry is an access entry of an EKS cluster: the user and the groups
// of a role.
type EKSAccessEntry struct {
	// Type is "STANDARD" if it is empty.
	Type string
	// Username is the name of the user. If it is empty, EKS makes it from the
	// role's name.
	Username string
	// Groups are the groups in the cluster.
	Groups []string
	// Policies are the names of access policies, such as AmazonEKSViewPolicy,
	// for the whole cluster.
	Policies []string
	// Tags are the tags of the entry.
	Tags map[string]string
}

// accessEntry belongs to the principal that had the ARN when the entry was
// created. An empty ID matches any principal.
type accessEntry struct {
	EKSAccessEntry
	principalID, arn  string
	created, modified time.Time
}

// SetEKSAccessEntry creates or replaces the access entry of a role. As in AWS,
// the entry belongs to the role that exists now, and not to a later role of the
// same name. If no role exists yet, the entry belongs to any role of the name.
func (a *AWS) SetEKSAccessEntry(clusterARN, roleARN string, entry EKSAccessEntry) {
	now := a.cloud.time()
	a.mu.Lock()
	defer a.mu.Unlock()
	id := ""
	if r := a.roles[roleARN]; r != nil {
		id = r.id
	}
	a.putEntry(clusterARN, roleARN, &accessEntry{EKSAccessEntry: entry, principalID: id, created: now, modified: now})
}

// The caller of putEntry holds the lock.
func (a *AWS) putEntry(clusterARN, principalARN string, entry *accessEntry) {
	c, p := strings.SplitN(clusterARN, ":", 6), strings.SplitN(principalARN, ":", 6)
	if len(c) == 6 && len(p) == 6 {
		kind, name, _ := strings.Cut(p[5], "/")
		entry.arn = fmt.Sprintf("%s:access-entry/%s/%s/%s/%s/%s", strings.Join(c[:5], ":"),
			strings.TrimPrefix(c[5], "cluster/"), kind, p[4], name, uuid.NewString())
	}
	if a.entries[clusterARN] == nil {
		a.entries[clusterARN] = map[string]*accessEntry{}
	}
	a.entries[clusterARN][principalARN] = entry
}

// EKSAccessEntries returns the access entries of a cluster by the ARN of their
// principals. Calls does not count it.
func (a *AWS) EKSAccessEntries(clusterARN string) map[string]EKSAccessEntry {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]EKSAccessEntry{}
	for arn, entry := range a.entries[clusterARN] {
		all[arn] = entry.EKSAccessEntry
	}
	return all
}

// createInput is the body of CreateAccessEntry. UpdateAccessEntry has only the
// groups and the user name.
type createInput struct {
	PrincipalARN string            `json:"principalArn"`
	Groups       []string          `json:"kubernetesGroups"`
	Username     string            `json:"username"`
	Type         string            `json:"type"`
	Tags         map[string]string `json:"tags"`
}

func (q eksRequest) input() (createInput, *awsError) {
	var in createInput
	if err := json.Unmarshal(q.body, &in); err != nil {
		return in, refuse(http.StatusBadRequest, "SerializationException", "")
	}
	return in, nil
}

// principalARN returns the ARN from the path, or from the body when an entry is
// created.
func (q eksRequest) principalARN() string {
	if q.action != "CreateAccessEntry" {
		return q.principal
	}
	in, _ := q.input() // createAccessEntry reports the error
	return in.PrincipalARN
}

// resource returns the ARN for permissions: an access entry, or the cluster.
// The ID of an entry is *, because the entry may not exist.
func (q eksRequest) resource() string {
	parts := strings.SplitN(q.principal, ":", 6)
	if len(parts) < 6 {
		return q.clusterARN
	}
	kind, name, _ := strings.Cut(parts[5], "/")
	return fmt.Sprintf("arn:%s:eks:%s:%s:access-entry/%s/%s/%s/%s/*", q.partition, q.region, q.caller.account, q.cluster,
		kind, parts[4], name)
}

func invalidInput(format string, args ...any) *awsError {
	return refuse(http.StatusBadRequest, "InvalidParameterException", format, args...)
}

// accessCluster checks that the cluster has access entries. The caller holds
// the lock.
func (a *AWS) accessCluster(q eksRequest) *awsError {
	switch cluster, known := a.clusters[q.clusterARN]; {
	case !known:
		return noSuchCluster(q.cluster)
	case cluster.AuthenticationMode == "CONFIG_MAP":
		return refuse(http.StatusBadRequest, "InvalidRequestException",
			"The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.")
	}
	return nil
}

// accessEntry returns the entry that the path names. The caller holds the lock.
func (a *AWS) accessEntry(q eksRequest) (*accessEntry, *awsError) {
	if err := a.accessCluster(q); err != nil {
		return nil, err
	}
	entry := a.entries[q.clusterARN][q.principal]
	if entry == nil {
		return nil, refuse(http.StatusNotFound, "ResourceNotFoundException",
			"The specified principalArn could not be found. You can view your available principals with 'list-access-entries'.")
	}
	return entry, nil
}

// groups returns nil if the request does not change them.
func (in createInput) groups() ([]string, *awsError) {
	for _, g := range in.Groups {
		if strings.HasPrefix(g, "system:") {
			return nil, invalidInput("The kubernetes group name %s is invalid, it cannot start with system:", g)
		}
	}
	return in.Groups, nil
}

func (a *AWS) createAccessEntry(q eksRequest) (any, *awsError) {
	in, err := q.input()
	if err != nil {
		return nil, err
	}
	now := a.cloud.time()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.accessCluster(q); err != nil {
		return nil, err
	}
	groups, err := in.groups()
	if err != nil {
		return nil, err
	}
	if a.entries[q.clusterARN][in.PrincipalARN] != nil {
		return nil, refuse(http.StatusConflict, "ResourceInUseException",
			"The specified access entry resource is already in use on this cluster.")
	}
	id, ok := a.principalID(in.PrincipalARN, now)
	if !ok {
		return nil, invalidInput("The specified principalArn is invalid: invalid principal.")
	}
	entry := &accessEntry{EKSAccessEntry: EKSAccessEntry{Type: in.Type, Username: in.Username, Groups: groups,
		Tags: in.Tags},
		principalID: id, created: now, modified: now}
	a.putEntry(q.clusterARN, in.PrincipalARN, entry)
	q.principal = in.PrincipalARN
	return entry.answer(q), nil
}

// updateAccessEntry changes only the members in the request. The entry keeps
// its principal.
func (a *AWS) updateAccessEntry(q eksRequest) (any, *awsError) {
	in, err := q.input()
	if err != nil {
		return nil, err
	}
	now := a.cloud.time()
	a.mu.Lock()
	defer a.mu.Unlock()
	entry, err := a.accessEntry(q)
	if err != nil {
		return nil, err
	}
	groups, err := in.groups()
	if err != nil {
		return nil, err
	}
	if groups != nil {
		entry.Groups = groups
	}
	entry.Username, entry.modified = firstOf(in.Username, entry.Username), now
	return entry.answer(q), nil
}

func (a *AWS) describeAccessEntry(q eksRequest) (any, *awsError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entry, err := a.accessEntry(q)
	if err != nil {
		return nil, err
	}
	return entry.answer(q), nil
}

func (a *AWS) deleteAccessEntry(q eksRequest) (any, *awsError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.accessEntry(q); err != nil {
		return nil, err
	}
	delete(a.entries[q.clusterARN], q.principal)
	return map[string]any{}, nil
}

// listAccessPolicies returns everything on one page, and no entries that EKS
// makes itself.
func (a *AWS) listAccessPolicies(q eksRequest) (any, *awsError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entry, err := a.accessEntry(q)
	if err != nil {
		return nil, err
	}
	policies := []any{}
	for _, p := range entry.Policies {
		policies = append(policies, map[string]any{"policyArn": "arn:" + q.partition + ":eks::aws:cluster-access-policy/" + p,
			"accessScope": map[string]any{"type": "cluster", "namespaces": []string{}}})
	}
	return map[string]any{"clusterName": q.cluster, "principalArn": q.principal, "associatedAccessPolicies": policies}, nil
}

func (e *accessEntry) answer(q eksRequest) any {
	tags := map[string]string{}
	maps.Copy(tags, e.Tags)
	return map[string]any{"accessEntry": map[string]any{"clusterName": q.cluster, "principalArn": q.principal,
		"accessEntryArn": e.arn,
		"type":           firstOf(e.Type, "STANDARD"), "username": e.username(q.principal),
		"kubernetesGroups": append([]string{}, e.Groups...),
		"tags":             tags, "createdAt": e.created.Unix(), "modifiedAt": e.modified.Unix()}}
}

// username returns the template for user names. By default, EKS makes it from
// the role's name.
func (e *accessEntry) username(principalARN string) string {
	parts := strings.SplitN(principalARN, ":", 6)
	if e.Username != "" || len(parts) < 6 || !strings.HasPrefix(parts[5], "role/") {
		return firstOf(e.Username, principalARN)
	}
	name := principalARN[strings.LastIndexByte(principalARN, '/')+1:]
	return fmt.Sprintf("arn:%s:sts::%s:assumed-role/%s/{{SessionName}}", parts[1], parts[4], name)
}

// entryOf returns the access entry of a principal and its ARN. The caller
// holds the lock.
func (a *AWS) entryOf(clusterARN string, k accessKey) (entry *accessEntry, arn string) {
	arn = firstOf(k.RoleARN, k.ARN)
	entry = a.entries[clusterARN][arn]
	if entry == nil || !slices.Contains([]string{"", k.principalID()}, entry.principalID) {
		return nil, ""
	}
	return entry, arn
}
