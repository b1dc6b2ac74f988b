package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/workloadid/workloadid/internal/shell"
)

// AccessReader reads whom an EKS cluster lets in, with rights that the identity under examination mostly lacks. The package
// awstrust has one.
type AccessReader interface {
	// ReadAccess returns what the cluster, given by its ARN, knows of a role, given by its ARN. Errors of the package auth
	// have their remedies shown.
	ReadAccess(ctx context.Context, clusterARN, roleARN string) (*Access, error)
}

// Access is what EKS knows of a role in a cluster.
type Access struct {
	// AuthenticationMode is API, API_AND_CONFIG_MAP or CONFIG_MAP. Empty: it was not read.
	AuthenticationMode string
	// Entry is the access entry. Nil: there is none, or, with CONFIG_MAP, it was not looked for.
	Entry *AccessEntry
	// ReadBy is whose rights it was read with, an ARN.
	ReadBy string
}

// AccessEntry is an access entry of EKS.
type AccessEntry struct {
	// Type is STANDARD, EC2_LINUX and so on.
	Type string
	// Username is the name in the cluster.
	Username string
	// Groups are the groups in the cluster.
	Groups []string
	// Policies are the access policies with their scopes, such as "AmazonEKSViewPolicy (cluster)".
	Policies []string
	// PoliciesErr is why the policies were not read.
	PoliciesErr error
}

// otherCluster is the correction of what names cluster and role.
const otherCluster = "correct the cluster's name, or the annotation of the ServiceAccount, if another cluster or role is meant"

const configMapMode = "CONFIG_MAP"

// explainAccess says what EKS itself knows of the role that a cluster lets in, or does not.
func (e *examination) explainAccess(ctx context.Context, f Finding) Finding {
	role, exact := e.role()
	if e.Access == nil || e.Provider.GetName() != "aws" || e.Cluster == "" || role == "" {
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	access, err := e.Access.ReadAccess(ctx, e.Cluster, role)
	if err != nil {
		f = f.with(Field{Name: "access entry", Observed: "unknown: " + shown(messageOf(err))})
		if own, ok := asError(err); ok && f.Result != Pass {
			f.Remedy = strings.TrimSpace(own.Remedy + "\n" + f.Remedy)
		}
		return f
	}
	if access.Entry == nil && !exact {
		f = f.with(same("access entry", "none for "+role+", but the role's path is not known: aws iam get-role"))
	} else {
		f = e.judgeAccess(f, access, role)
	}
	if access.AuthenticationMode != "" {
		f = f.with(same("authentication mode", access.AuthenticationMode))
	}
	return f.with(same("read as", access.ReadBy))
}

func (e *examination) judgeAccess(f Finding, access *Access, role string) Finding {
	name := e.Cluster[strings.LastIndexByte(e.Cluster, '/')+1:]
	commands := fmt.Sprintf("--cluster-name %s --region %s --principal-arn %s", shell.Word(name, "CLUSTER_NAME"), shell.Word(regionOfARN(e.Cluster), "REGION"),
		shell.Word(role, "ROLE_ARN"))
	switch {
	case access.AuthenticationMode == configMapMode && f.Result == Pass:
		f.Message += ", as the ConfigMap aws-auth says"
	case access.AuthenticationMode == configMapMode:
		f.Message = "401: the cluster goes by its ConfigMap aws-auth alone, which was not read; access entries do not count there"
		f.Remedy = "kubectl -n kube-system get configmap aws-auth -o yaml, and add the role without its path under mapRoles, or have access entries count:\n" +
			fmt.Sprintf("aws eks update-cluster-config --name %s --region %s --access-config authenticationMode=API_AND_CONFIG_MAP", shell.Word(name, "CLUSTER_NAME"), shell.Word(regionOfARN(e.Cluster), "REGION"))
	case access.Entry == nil && f.Result == Pass:
		f.Message += ", without an access entry"
		f = f.with(same("access entry", "none; the ConfigMap aws-auth knows the role, or it made the cluster"))
	case access.Entry == nil:
		f.Message = "401: the token is well formed, but there is no access entry for " + shown(role)
		if access.AuthenticationMode == "API_AND_CONFIG_MAP" {
			f.Message += ", and the ConfigMap aws-auth, which was not read, does not help either"
		}
		f.Causes = nil // it is known now
		f.Remedy = "aws eks create-access-entry " + commands
		f = f.with(differs("access entry", "none", "one for "+role))
	default:
		f = access.Entry.show(f, commands)
	}
	if f.Result != Pass {
		return e.widening(f, otherCluster)
	}
	return f
}

// show puts the entry beside the cluster's answer. A 401 in spite of an entry is mostly one of a role that was made anew:
// EKS goes by the role's ID then, which the entry does not show.
func (a *AccessEntry) show(f Finding, commands string) Finding {
	policies := strings.Join(a.Policies, ", ")
	if a.PoliciesErr != nil {
		policies = "unknown: " + messageOf(a.PoliciesErr)
	}
	groups := firstOf(strings.Join(a.Groups, ", "), "none")
	if f.Result == Pass { // its fields are not printed
		f.Message += fmt.Sprintf(", by an access entry of type %s (groups: %s; access policies: %s)", shown(a.Type),
			shown(groups), shown(firstOf(policies, "none")))
	} else {
		f.Message = "401: the token is well formed and there is an access entry for the role, but the cluster does not let it in"
		f.Causes = []string{"the role was deleted and made anew after the entry, which holds the old role's ID",
			"the entry was made in the last minutes", "the token names another cluster, or the address is that of another one"}
		f.Remedy = fmt.Sprintf("make the entry anew if the role is younger than it: aws eks delete-access-entry %s; aws eks create-access-entry %s", commands, commands) + a.options()
	}
	return f.with(same("access entry", "type "+firstOf(a.Type, "unknown")), same("user", a.Username),
		same("groups", groups), same("access policies", firstOf(policies, "none")))
}

// options are what a new entry needs to be like this one. Only plain names become part of a command.
func (a *AccessEntry) options() string {
	var b strings.Builder
	for i, group := range a.Groups {
		if i == 0 {
			b.WriteString(" --kubernetes-groups")
		}
		if strings.Trim(group, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._-") != "" || group == "" {
			group = "GROUP_NAME"
		}
		b.WriteString(" " + shown(group))
	}
	if len(a.Policies) > 0 || a.PoliciesErr != nil {
		b.WriteString("; then aws eks associate-access-policy for each of its access policies")
	}
	return b.String()
}

// role is the ARN of the role whose credentials were gained: that of the annotation or else, without the path, what the session
// tells.
func (e *examination) role() (arn string, exact bool) {
	want := e.serviceAccount().Annotations[e.cloud.required]
	session := ""
	if t, ok := e.gained.(interface{ AssumedRoleARN() string }); ok {
		session = t.AssumedRoleARN()
	}
	if session == "" || sameIdentity(session, want) {
		return want, true
	}
	const parts, account, resource = 6, 4, 5
	p := strings.SplitN(session, ":", parts)
	if len(p) != parts || !strings.HasPrefix(p[resource], "assumed-role/") {
		return "", false
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(p[resource], "assumed-role/"), "/")
	return "arn:" + p[1] + ":iam::" + p[account] + ":role/" + name, false
}

func regionOfARN(arn string) string {
	const region = 3
	if p := strings.Split(arn, ":"); len(p) > region {
		return p[region]
	}
	return ""
}
