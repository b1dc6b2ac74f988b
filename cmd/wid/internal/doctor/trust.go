package doctor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/shell"
)

// Claims are the claims of a ServiceAccount token (RFC 7519, and kubernetes.io). They prove nothing: the doctor verifies no
// signature before it reads them.
type Claims struct {
	Issuer, Subject string
	Audiences       []string
	// Namespace and ServiceAccount are parts of Subject.
	Namespace, ServiceAccount string
	Expiry                    time.Time
}

// TrustQuery is what a check compares with what a cloud trusts.
type TrustQuery struct {
	Claims Claims
	// Identity is that of auth.Provider.GetIdentity: a role ARN, a client ID, an e-mail address.
	Identity string
	// Annotations are those of the ServiceAccount, with the caller's laid over them.
	Annotations map[string]string
	// Cluster is the resource name of the cluster to reach, such as the ARN of an EKS cluster. Optional.
	Cluster string
}

// Fill puts the names of the query into the words in capitals. Names that a shell, jq or IAM could interpret stay for the reader.
func (q *TrustQuery) Fill(text string) string {
	prefix, role, _ := strings.Cut(q.Identity, ":role/")
	host, _ := strings.CutPrefix(q.Claims.Issuer, "https://")
	set := map[string]string{"NAMESPACE": q.Claims.Namespace, "SERVICE_ACCOUNT": q.Claims.ServiceAccount, "ISSUER": q.Claims.Issuer, "ISSUER_HOST": host,
		"SUBJECT": q.Claims.Subject, "CLIENT_ID": q.Annotations[annotation.AzureClientID]}
	if role != "" {
		set["ROLE_ARN"], set["ROLE_NAME"], set["PROVIDER_ARN"] = q.Identity, role[strings.LastIndexByte(role, '/')+1:], prefix+":oidc-provider/"+host
	}
	if len(q.Claims.Audiences) == 1 && q.Claims.Audiences[0] == "sts.amazonaws.com" { // another one may be a mistake
		set["AUDIENCE"] = q.Claims.Audiences[0]
	}
	if part := strings.Split(q.Cluster, ":"); len(part) == 6 && part[2] == "eks" { //nolint:mnd // of an ARN
		set["CLUSTER_ARN"], set["CLUSTER_REGION"], set["CLUSTER_NAME"] = q.Cluster, part[3], strings.TrimPrefix(part[5], "cluster/")
	}
	q.fillGoogle(set)
	var pairs []string
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(set))) { // ISSUER_HOST before ISSUER
		if value := set[name]; shell.Word(value, "") == value {
			pairs = append(pairs, name, cmp.Or(value, name))
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (q *TrustQuery) fillGoogle(set map[string]string) {
	named, email := q.Annotations[annotation.GCPWorkloadIdentityProvider], q.Annotations[annotation.GCPServiceAccount]
	provider, err := gcpname.ParseWorkloadIdentityProvider(named[max(strings.Index(named, "projects/"), 0):], "")
	if err == nil {
		pool, _, _ := strings.Cut(provider.Name, "/providers/")
		set["PROVIDER_NAME"], set["PROJECT_ID"] = provider.Name, provider.ProjectNumber
		if q.Claims.Subject != "" {
			set["PRINCIPAL"] = "principal://iam.googleapis.com/" + pool + "/subject/" + q.Claims.Subject
		}
	}
	set["MEMBER"] = set["PRINCIPAL"]
	if email != "" {
		set["EMAIL"], set["MEMBER"] = email, "serviceAccount:"+email
	}
}

// IfMeant returns the condition under which a cloud should trust the ServiceAccount.
func (q *TrustQuery) IfMeant() string {
	return "If " + cmp.Or(shell.Word(q.Claims.Namespace, ""), "the identity") + " is meant to have it"
}

// Trust examines what a cloud trusts. The package trust/aws implements it: live, with the login of the person who runs the doctor,
// or from files. An implementation reads once and serves one examination.
type Trust interface {
	// Anchor examines whether the cloud trusts the token's issuer for its audience: the OIDC provider.
	Anchor(ctx context.Context, q TrustQuery) Finding
	// Rule examines whether the identity admits the token: the role's trust policy.
	Rule(ctx context.Context, q TrustQuery) Finding
}

// Access explains why an EKS cluster does not admit a role. The package trust/aws implements it.
type Access interface {
	// Access is called after the cluster has answered 401. It returns a failure of class ClusterRefusesIdentity if the cause is known, or narrowed down
	// to the Causes of the finding. Unknown means that the cluster's access entries could not be read, and says why.
	Access(ctx context.Context, clusterARN, roleARN string) Finding
}
