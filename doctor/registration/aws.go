package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

const arnForm = "arn:<partition>:eks:<region>:<account>:cluster/<name>"

// marks returns the annotations in which the cluster claims its role.
func (e *examination) marks() (own, released, suffix string) {
	if e.cluster == nil {
		return "", "", ""
	}
	a := e.cluster.Annotations
	return a[awsirsa.ARNAnnotation], a[awsirsa.OCMARNAnnotation], a[awsirsa.OCMSuffixAnnotation]
}

// wantsIAM reports whether the Klusterlet names the driver.
func (e *examination) wantsIAM() bool {
	if e.klusterlet == nil {
		return false
	}
	driver := e.klusterlet.Spec.RegistrationConfiguration.RegistrationDriver.AuthType
	return driver == registration.ProposedNames.AuthTypeAWS() || driver == registration.OCMNames.AuthTypeAWS()
}

// usesIAM reports whether the cluster registers with an AWS role, without certificates.
func (e *examination) usesIAM() bool {
	own, released, suffix := e.marks()
	return own != "" || released != "" || suffix != "" || e.wantsIAM()
}

func describeCluster(text string) doctor.Remedy {
	return doctor.Do(text, "aws eks describe-cluster --name CLUSTER_NAME --query cluster.arn")
}

func (e *examination) checkClaim(ctx context.Context) doctor.Finding {
	own, released, suffix := e.marks()
	e.hubARN = e.HubClusterARN
	said := ""
	if e.klusterlet != nil {
		said = e.klusterlet.Spec.RegistrationConfiguration.RegistrationDriver.AWSIRSA.HubClusterARN
	}
	if e.hubARN == "" {
		e.hubARN = said
	}
	switch {
	case e.cluster == nil || !e.usesIAM():
		return doctor.Skipped("The cluster does not register with an AWS role.")
	case own == "" && (released == "" || suffix == ""):
		return doctor.Failed("O30", doctor.Do("Join again with an AWS role:", "clusteradm join --registration-auth awsirsa --managed-cluster-arn ARN --hub-cluster-arn ARN"),
			"The ManagedCluster lacks an annotation of its AWS role, so the hub makes none.").
			Compare("annotations", orNone(released, suffix), "expected", "the cluster's ARN, and the suffix of its role")
	case own != "" && released != "" && own != released:
		return doctor.Failed("O31", doctor.Do("Remove the wrong annotation:", "kubectl annotate managedcluster "+e.name()+" ANNOTATION-"), "The ManagedCluster claims two ARNs.").
			Compare(awsirsa.ARNAnnotation, own, awsirsa.OCMARNAnnotation, released)
	case said != "" && said != e.hubARN:
		return doctor.Failed("O32", doctor.Do("Correct awsIrsa.hubClusterArn in the Klusterlet, and join again:", "kubectl edit klusterlet"),
			"The cluster joins with the ARN of another hub.").Compare("Klusterlet", said, "hub", e.hubARN)
	}
	return e.judgeARNs(ctx, orElse(own, released), suffix)
}

func orNone(values ...string) string {
	return orElse(strings.Join(slices.DeleteFunc(values, func(s string) bool { return s == "" }), ", "), "none")
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (e *examination) judgeARNs(ctx context.Context, claim, suffix string) doctor.Finding {
	managed, err := awsirsa.ParseClusterARN(claim)
	if err != nil {
		return doctor.Failed("O31", describeCluster("Join again with the ARN of the cluster:"), "The ARN of the cluster is malformed.").Compare("claim", claim, "form", arnForm)
	}
	if f, shared := e.sharedClaim(ctx, claim); shared {
		return f
	}
	if e.hubARN == "" {
		return doctor.Unclear(describeCluster("Add the hub's ARN:"), "The hub's own ARN is not known, so its role for the cluster is not known either.")
	}
	hub, err := awsirsa.ParseClusterARN(e.hubARN)
	if err != nil {
		return doctor.Failed("O31", describeCluster("Correct the hub's ARN:"), "The ARN of the hub is malformed.").Compare("hub", e.hubARN, "form", arnForm)
	}
	if id := awsirsa.ID(hub, managed); suffix != "" && suffix != id {
		return doctor.Failed("O32", doctor.Do("Join again with the ARNs of this hub and this cluster."), "The role's suffix is that of another hub or cluster.").
			Compare("suffix", suffix, "expected", id)
	}
	e.hubRole = awsirsa.HubRoleARN(hub, managed)
	return doctor.Passed("The cluster claims the role %s.", e.hubRole)
}

// sharedClaim finds a second ManagedCluster with the same claim. The hub gives access to only one of them.
func (e *examination) sharedClaim(ctx context.Context, claim string) (doctor.Finding, bool) {
	clusters, _, err := kube.List[ocm.ManagedCluster](ctx, e.Hub, ocm.GroupVersion.WithKind("ManagedCluster"))
	if err != nil {
		return doctor.Finding{}, false // the other checks do not need the right to list
	}
	i := slices.IndexFunc(clusters, func(c ocm.ManagedCluster) bool {
		return c.Name != e.ClusterName && (c.Annotations[awsirsa.ARNAnnotation] == claim || c.Annotations[awsirsa.OCMARNAnnotation] == claim)
	})
	if i < 0 {
		return doctor.Finding{}, false
	}
	return doctor.Failed("O35", doctor.Do("At the hub, delete the wrong one:", "kubectl delete managedcluster UNWANTED_CLUSTER"),
		"Two ManagedClusters claim the same cluster of EKS; only one gets access.").Compare("examined", e.ClusterName, "other", clusters[i].Name), true
}

// checkRole tries the role as the agent does.
func (e *examination) checkRole(ctx context.Context) doctor.Finding {
	if e.hubRole == "" {
		return doctor.Skipped("There is no role to try.")
	}
	role := shell.Word(e.hubRole, "ROLE_ARN")
	assume := doctor.Do("Try it as the cluster's agent:", "aws sts assume-role --role-session-name wid --role-arn "+role)
	if e.cluster != nil {
		if c := e.condition(awsirsa.ConditionReady); c.Status == "False" && c.Reason == "RoleRefused" {
			return observed(roleRefused(assume), c, "True")
		}
	}
	if e.AssumeRole != nil {
		if err := e.AssumeRole(ctx, e.hubRole); err != nil {
			return e.judgeAssume(err, assume)
		}
	}
	if e.DescribeAccessEntry != nil {
		if f := e.judgeEntry(ctx, role); f.Result != doctor.Pass {
			return f
		}
	}
	switch {
	case e.AssumeRole == nil:
		return doctor.Unclear(assume, "The doctor did not try whether the agent can assume its role.").Detail("role", e.hubRole)
	case e.DescribeAccessEntry == nil:
		return doctor.Unclear(doctor.Do("Read it in the hub's account:", e.describeEntry(role)), "The doctor did not read the role's access entry at the hub.")
	}
	return doctor.Passed("The agent can assume its role, and the hub admits it.")
}

func roleRefused(assume doctor.Remedy) doctor.Finding {
	f := doctor.Failed("O33", assume, "The agent cannot assume the role that the hub has made for it.")
	f.Causes = []string{"the agent's own role lacks one of the four tags that the trust policy wants", "the hub has not made the role",
		"the hub made it a moment ago: IAM takes a minute"}
	return f
}

func (e *examination) judgeAssume(err error, assume doctor.Remedy) doctor.Finding {
	if errors.Is(err, auth.ErrUnavailable) || errors.Is(err, auth.ErrThrottled) || errors.Is(err, context.DeadlineExceeded) {
		return doctor.Refusal("AWS STS", err)
	}
	f := roleRefused(assume).Detail("error", fmt.Sprintf("%.500s", err))
	var known *auth.Error
	if errors.As(err, &known) {
		f.StatusCode, f.Code, f.RequestID = known.StatusCode, known.Code, known.RequestID
	}
	return f
}

func (e *examination) describeEntry(role string) string {
	hub, _ := awsirsa.ParseClusterARN(e.hubARN)
	return fmt.Sprintf("aws eks describe-access-entry --region %s --cluster-name %s --principal-arn %s", hub.Region, hub.Name, role)
}

func (e *examination) judgeEntry(ctx context.Context, role string) doctor.Finding {
	groups, found, err := e.DescribeAccessEntry(ctx, e.hubARN, e.hubRole)
	want := registration.ClusterGroups(e.ClusterName)[1]
	again := doctor.Do("At the hub, deny the cluster and accept it again, so that the hub makes the entry anew:", "wid hub deny --clusters "+e.name(), "wid hub accept --clusters "+e.name())
	switch {
	case err != nil:
		return doctor.Unclear(doctor.Do("Read it in the hub's account:", e.describeEntry(role)), "The role's access entry at the hub could not be read.").Detail("error", fmt.Sprintf("%.500s", err))
	case !found:
		return doctor.Failed("O34", again, "The hub has no access entry for the role.").Compare("access entry", "none", "expected", e.hubRole)
	case !slices.Contains(groups, want):
		return doctor.Failed("O34", again, "The access entry of the role lacks the cluster's group.").Compare("groups", orNone(groups...), "expected", want)
	}
	return doctor.Passed("The hub admits the role.")
}
