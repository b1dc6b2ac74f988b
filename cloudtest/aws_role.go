package cloudtest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// role is a role of an account. AWS.mu guards it.
type role struct {
	arn, id, description string
	created              time.Time
	maxSession           time.Duration
	document             string
	trust                policy            // unique IDs replace the principals in bound
	bound                map[string]string // unique IDs by ARN
	tags                 map[string]string
	policies             map[string]inlinePolicy
	// open is set for roles of SetRole. Without a policy, they may do
	// everything.
	open bool
	// visibleFrom and unseen hold the rest of the delay until other services
	// see the role.
	visibleFrom time.Time
	unseen      int
}

type inlinePolicy struct {
	document string
	policy   policy
}

func newRole(arn string) *role {
	return &role{arn: arn, id: "AROA" + randomName(17), maxSession: time.Hour, tags: map[string]string{},
		policies: map[string]inlinePolicy{}}
}

func (r *role) name() string { return r.arn[strings.LastIndexByte(r.arn, '/')+1:] }

// SetRole creates a role, arn:<partition>:iam::<account>:role/<name>, or
// replaces its trust policy. It differs in two ways from a role of the API of
// IAM. It may do everything until it gets a policy. Its trust policy may name
// principals that do not exist.
func (a *AWS) SetRole(arn string, trust Trust) {
	now := a.cloud.time()
	document := trust.document(arn)
	var parsed policy
	_ = json.Unmarshal(document, &parsed) // SetRole has encoded it from the same shape
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.roles[arn]
	if r == nil {
		r = newRole(arn)
		r.open, r.created = true, now
		a.roles[arn] = r
	}
	r.document, r.trust, r.bound, r.maxSession = string(document), parsed, nil, trust.maxSession()
}

// RemoveRole removes a role with its tags and policies. As in AWS, its sessions
// stay valid, but IAM, EKS and AssumeRole refuse them. A later role of the same
// name is another role.
func (a *AWS) RemoveRole(arn string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.roles, arn)
}

// Roles returns the ARNs of all roles, sorted. Calls does not count it.
func (a *AWS) Roles() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.roles))
}

// SetConsistencyDelay hides roles that are created later through the API of IAM
// for a while. Meanwhile EKS refuses access entries for them, STS refuses to
// assume them, and trust policies cannot name them. IAM itself shows them at
// once. A role becomes visible after the delay on the cloud's clock and, after
// it, the given number of failed calls.
func (a *AWS) SetConsistencyDelay(delay time.Duration, calls int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delay, a.delayedCalls = delay, calls
}

// visible reports whether services other than IAM see the role. It counts as
// one of the failed calls. The caller holds the lock.
func (r *role) visible(now time.Time) bool {
	if now.Before(r.visibleFrom) {
		return false
	}
	if r.unseen > 0 {
		r.unseen--
		return false
	}
	return true
}

// principalID returns the unique ID of a role or user. The caller holds the
// lock.
func (a *AWS) principalID(arn string, now time.Time) (id string, ok bool) {
	if r := a.roles[arn]; r != nil {
		return r.id, r.visible(now)
	}
	for _, k := range a.keys {
		if k.ARN == arn && k.RoleARN == "" {
			return k.userID, true
		}
	}
	return "", false
}

// bind replaces the roles and users in a trust policy by their unique IDs, as
// IAM does when it stores the policy. The policy does not trust a role that is
// deleted and created again. The caller holds the lock.
func (a *AWS) bind(p policy, now time.Time) (bound map[string]string, err *awsError) {
	bound = map[string]string{}
	for _, s := range p.Statement {
		for i, name := range s.Principal["AWS"] {
			if isStandingPrincipal(name) {
				continue
			}
			id, ok := a.principalID(name, now)
			if !ok {
				return nil, malformed(`Invalid principal in policy: "AWS":"%s"`, name)
			}
			s.Principal["AWS"][i], bound[name] = id, id
		}
	}
	return bound, nil
}

// isStandingPrincipal reports whether a principal is neither a role nor a user:
// the wildcard, an account, or a session.
func isStandingPrincipal(p string) bool {
	parts := strings.SplitN(p, ":", 6)
	return p == "*" || len(p) == 12 && !strings.Contains(p, ":") ||
		len(parts) == 6 && (parts[5] == "root" || parts[2] == "sts" && strings.HasPrefix(parts[5], "assumed-role/"))
}

// shownDocument returns the trust policy, with unique IDs in place of deleted
// principals. The caller holds the lock.
func (a *AWS) shownDocument(r *role) string {
	document := r.document
	for arn, id := range r.bound {
		if live := a.roles[arn]; strings.HasPrefix(id, "AROA") && (live == nil || live.id != id) {
			document = strings.ReplaceAll(document, `"`+arn+`"`, `"`+id+`"`)
		}
	}
	return document
}

// identityDecision evaluates Deny and the caller's own policies. Users may do
// everything.
func (a *AWS) identityDecision(caller accessKey, wanted access) decision {
	if a.isDenied(caller.Identity, wanted.action) {
		return denied
	}
	if caller.RoleARN == "" {
		return allowed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.roles[caller.RoleARN]
	switch {
	case r == nil || r.id != caller.principalID():
		return silent
	case r.open && len(r.policies) == 0:
		return allowed
	}
	result := silent
	for _, p := range r.policies {
		result = max(result, p.policy.decide(wanted))
	}
	return result
}

// authorized reports whether the caller may do an action in its own account.
func (a *AWS) authorized(caller accessKey, action, resource string) bool {
	return a.identityDecision(caller, access{action: action, resource: resource, context: a.contextOf(caller)}) == allowed
}

// contextOf returns the condition keys of a caller. Session tags hide the tags
// of its role.
func (a *AWS) contextOf(caller accessKey) map[string][]string {
	c := map[string][]string{"aws:principalaccount": {caller.account},
		"aws:principalarn": {firstOf(caller.RoleARN, caller.ARN)}}
	a.mu.Lock()
	defer a.mu.Unlock()
	var tags map[string]string
	if r := a.roles[caller.RoleARN]; r != nil && r.id == caller.principalID() {
		tags = r.tags
	}
	for _, set := range []map[string]string{tags, caller.Tags} {
		for key, value := range set {
			c["aws:principaltag/"+strings.ToLower(key)] = []string{value}
		}
	}
	return c
}

// principalID returns the unique ID of the role or user.
func (k accessKey) principalID() string {
	id, _, _ := strings.Cut(k.userID, ":")
	return id
}
