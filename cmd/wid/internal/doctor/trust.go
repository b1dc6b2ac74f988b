package doctor

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/shell"
)

// Claims are the claims of a ServiceAccount token (RFC 7519, and
// kubernetes.io). They prove nothing: the doctor verifies no signature before
// it reads them.
type Claims struct {
	Issuer, Subject           string
	Audiences                 []string
	Namespace, ServiceAccount string // parts of Subject
	Expiry                    time.Time
}

// TrustQuery describes the token that a check compares with a cloud's trust.
type TrustQuery struct {
	Claims      Claims
	Identity    string            // of auth.Provider.GetIdentity: a role ARN, a client ID, an e-mail address
	Annotations map[string]string // of the ServiceAccount, with the caller's laid over them
}

// Fill puts the names of the query into the words in capitals. Names that a
// shell, jq or IAM could interpret stay for the reader.
func (q *TrustQuery) Fill(text string) string { return q.fill(text, false) }

// FillGrant is Fill for commands that make a cloud trust a token. The pool
// stays for the reader, because the tenant may have named one of its own in the
// annotation. Such a pool would keep the access, with tokens of the tenant's
// making.
func (q *TrustQuery) FillGrant(text string) string { return q.fill(text, true) }

func (q *TrustQuery) fill(text string, grant bool) string {
	prefix, role, _ := strings.Cut(q.Identity, ":role/")
	host, _ := strings.CutPrefix(q.Claims.Issuer, "https://")
	set := map[string]string{"NAMESPACE": q.Claims.Namespace, "SERVICE_ACCOUNT": q.Claims.ServiceAccount,
		"ISSUER": q.Claims.Issuer, "ISSUER_HOST": host,
		"SUBJECT": q.Claims.Subject, "CLIENT_ID": q.Annotations[annotation.AzureClientID]}
	if role != "" {
		set["ROLE_ARN"], set["ROLE_NAME"], set["PROVIDER_ARN"] = q.Identity, role[strings.LastIndexByte(role, '/')+1:],
			prefix+":oidc-provider/"+host
	}
	if len(q.Claims.Audiences) == 1 && q.Claims.Audiences[0] == "sts.amazonaws.com" { // another one may be a mistake
		set["AUDIENCE"] = q.Claims.Audiences[0]
	}
	q.fillGoogle(set, grant)
	var pairs []string
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(set))) { // ISSUER_HOST before ISSUER
		if value := set[name]; shell.Word(value, "") == value {
			pairs = append(pairs, name, cmp.Or(value, name))
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (q *TrustQuery) fillGoogle(set map[string]string, grant bool) {
	named, email := q.Annotations[annotation.GCPWorkloadIdentityProvider], q.Annotations[annotation.GCPServiceAccount]
	provider, err := gcpname.ParseWorkloadIdentityProvider(named[max(strings.Index(named, "projects/"), 0):], "")
	if err == nil {
		pool, _, _ := strings.Cut(provider.Name, "/providers/")
		if grant {
			pool = "POOL_NAME"
		} else {
			set["PROVIDER_NAME"], set["PROJECT_ID"] = provider.Name, provider.ProjectNumber
		}
		if q.Claims.Subject != "" {
			set["PRINCIPAL"] = "principal://iam.googleapis.com/" + pool + "/subject/" + q.Claims.Subject
		}
	}
	set["MEMBER"] = set["PRINCIPAL"]
	if email != "" {
		set["EMAIL"], set["MEMBER"] = email, "serviceAccount:"+email
	}
}

// IfMeant returns the condition under which a cloud should trust the
// ServiceAccount.
func (q *TrustQuery) IfMeant() string {
	return "If " + cmp.Or(shell.Word(q.Claims.Namespace, ""), "the identity") + " is meant to have it"
}
