package cloudtest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/awsname"
)

// SetEKSAuthMap makes a cluster map roles by its ConfigMap aws-auth, unless its
// AuthenticationMode is API. [AWS.VerifyEKSToken] calls read for each token
// that no access entry maps. read returns the key mapRoles of the ConfigMap, a
// list in YAML. The cluster may be unknown to [AWS.SetEKSCluster], because a
// cluster outside EKS can use aws-auth too. Nil removes the map.
func (a *AWS) SetEKSAuthMap(clusterARN string, read func() (mapRoles string, err error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.authMaps[clusterARN] = read
}

var errNotMapped = errors.New("identity is not mapped")

// VerifyEKSToken authenticates a bearer token like the webhook of an EKS
// cluster. It checks the signed request in the token by the rules of
// aws-iam-authenticator, and sends it to STS with the cluster's name. It maps
// the identity to a user: by the access entry of exactly that role, or by
// [AWS.SetEKSAuthMap]. It returns the user of the TokenReview and the AWS
// identity behind it. Calls does not count it. It does not imitate access
// policies, the keys mapUsers and mapAccounts of aws-auth, and the templates of
// aws-auth for nodes.
func (a *AWS) VerifyEKSToken(clusterARN, token string) (authenticationv1.UserInfo, Identity, error) {
	parts := strings.SplitN(clusterARN, ":", 6)
	if len(parts) != 6 {
		return authenticationv1.UserInfo{}, Identity{}, fmt.Errorf("cloudtest: %q is not the ARN of a cluster", clusterARN)
	}
	u, err := readEKSToken(token, parts[1], a.cloud.time())
	if err != nil {
		return authenticationv1.UserInfo{}, Identity{}, fmt.Errorf("input token was not properly formatted: %w", err)
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{
		"X-K8s-Aws-Id": {strings.TrimPrefix(parts[5], "cluster/")}, "Accept": {"application/json"}}}
	caller, refused := a.authenticate(signedRequest{r, nil, "sts", awsname.STSRegion(u.Host)})
	if refused != nil {
		return authenticationv1.UserInfo{}, Identity{},
			fmt.Errorf("sts getCallerIdentity failed: error from AWS (expected 200, got %d): %w", refused.status, refused)
	}
	user, err := a.mapIdentity(clusterARN, caller)
	if err != nil {
		return authenticationv1.UserInfo{}, Identity{}, err
	}
	return user, caller.Identity, nil
}

// mapIdentity tries the access entries first, as EKS does.
func (a *AWS) mapIdentity(clusterARN string, caller accessKey) (authenticationv1.UserInfo, error) {
	user := authenticationv1.UserInfo{UID: "aws-iam-authenticator:" + caller.account + ":" + caller.principalID()}
	a.mu.Lock()
	mode, read := a.clusters[clusterARN].AuthenticationMode, a.authMaps[clusterARN]
	entry, arn := a.entryOf(clusterARN, caller)
	if entry != nil && mode != "CONFIG_MAP" {
		user.Username, user.Groups = caller.fill(entry.username(arn)), append([]string{}, entry.Groups...)
	}
	a.mu.Unlock()
	switch {
	case user.Username != "":
		return user, nil
	case read == nil || mode == "API":
		return authenticationv1.UserInfo{}, errNotMapped
	}
	text, err := read()
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("reading aws-auth: %w", err)
	}
	return byAuthMap(text, user, caller)
}

// byAuthMap compares ARNs as aws-iam-authenticator does: without the role's
// path, which the ARN of a session lacks, and without case.
func byAuthMap(mapRoles string, u authenticationv1.UserInfo, caller accessKey) (authenticationv1.UserInfo, error) {
	var mappings []struct {
		RoleARN  string   `json:"rolearn"`
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	}
	if err := yaml.Unmarshal([]byte(mapRoles), &mappings); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("reading aws-auth: %w", err)
	}
	parts := strings.Split(caller.ARN, "/")
	session := strings.SplitN(parts[0], ":", 6)
	for _, m := range mappings {
		if caller.RoleARN != "" &&
			strings.EqualFold(m.RoleARN, fmt.Sprintf("arn:%s:iam::%s:role/%s", session[1], caller.account, parts[1])) {
			u.Username, u.Groups = caller.fill(m.Username), m.Groups
			return u, nil
		}
	}
	return authenticationv1.UserInfo{}, errNotMapped
}

// fill replaces the variables of a template for user names.
func (k accessKey) fill(template string) string {
	return strings.NewReplacer("{{AccountID}}", k.account, "{{SessionName}}", strings.ReplaceAll(k.SessionName, "@", "-"),
		"{{SessionNameRaw}}", k.SessionName, "{{AccessKeyID}}", k.id).Replace(template)
}
