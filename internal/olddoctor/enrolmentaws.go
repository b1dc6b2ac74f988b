package doctor

import (
	"context"
	"crypto/md5" //nolint:gosec // the name of the role is defined with it
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/shell"
)

const (
	arnAnnotation    = "agent.open-cluster-management.io/managed-cluster-arn"
	suffixAnnotation = "agent.open-cluster-management.io/managed-cluster-iam-role-suffix"
)

// clusterOfEKS is what the ARN of a cluster says.
type clusterOfEKS struct{ partition, region, account, name string }

// parseEKS takes arn:<partition>:eks:<region>:<account>:cluster/<name>.
func parseEKS(arn string) (clusterOfEKS, error) {
	const parts = 6
	p := strings.SplitN(arn, ":", parts)
	if len(p) != parts || p[0] != "arn" || p[2] != "eks" {
		return clusterOfEKS{}, errors.New("it is not arn:<partition>:eks:<region>:<account>:cluster/<name>")
	}
	name, ok := strings.CutPrefix(p[5], "cluster/")
	switch {
	case !awsname.KnownPartition(p[1]):
		return clusterOfEKS{}, fmt.Errorf("there is no partition %.100q", p[1])
	case !awsname.ValidRegion(p[3]):
		return clusterOfEKS{}, fmt.Errorf("%.100q is not a region", p[3])
	case !awsname.ValidAccount(p[4]):
		return clusterOfEKS{}, fmt.Errorf("%.100q is not an account of 12 digits", p[4])
	case !ok || !awsname.ValidClusterName(name):
		return clusterOfEKS{}, fmt.Errorf("%.100q is not cluster/<name>", p[5])
	}
	return clusterOfEKS{p[1], p[3], p[4], name}, nil
}

// roleSuffix is how hub and cluster name the role of a pair of clusters.
func roleSuffix(hub, managed clusterOfEKS) string {
	sum := md5.Sum([]byte(strings.Join([]string{hub.account, hub.name, managed.account, managed.name}, "#"))) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// claimed is what the cluster says of itself.
func (e *enrolment) claimed() (arn, suffix string) {
	if e.cluster == nil {
		return "", ""
	}
	annotations := e.cluster.GetAnnotations()
	return annotations[arnAnnotation], annotations[suffixAnnotation]
}

// irsa is what the Klusterlet says of a registration with IAM.
func (e *enrolment) irsa() (hubARN string, wanted bool) {
	if e.klusterlet == nil {
		return "", false
	}
	driver, _, _ := unstructured.NestedMap(e.klusterlet.Object, "spec", "registrationConfiguration", "registrationDriver")
	settings, _ := driver["awsIrsa"].(map[string]any)
	return text(settings, "hubClusterArn"), text(driver, "authType") == "awsirsa"
}

func (e *enrolment) checkAWS(ctx context.Context) Finding {
	if f, none := e.noCluster(); none {
		return f
	}
	arn, suffix := e.claimed()
	said, wanted := e.irsa()
	switch {
	case arn == "" && suffix == "" && !wanted:
		return skip("the cluster does not register with an IAM role")
	case arn == "" || suffix == "":
		return fail("O30", "join again with --registration-auth awsirsa; nobody adds them later",
			"the ManagedCluster lacks annotations: the hub makes no role for it").
			with(differs(arnAnnotation, firstOf(arn, "absent"), "the cluster's ARN"),
				differs(suffixAnnotation, firstOf(suffix, "absent"), "32 hexadecimal digits"))
	case e.HubClusterARN != "" && said != "" && said != e.HubClusterARN:
		return fail("O32", "correct spec.registrationConfiguration.registrationDriver.awsIrsa.hubClusterArn of the Klusterlet, "+
			"and join again", "the cluster has joined with the ARN of another hub").
			with(differs("hubClusterArn", said, e.HubClusterARN))
	}
	return e.judgeARNs(ctx, arn, suffix, firstOf(e.HubClusterARN, said))
}

func (e *enrolment) judgeARNs(ctx context.Context, arn, suffix, hubARN string) Finding {
	const ask = "aws eks describe-cluster --name CLUSTER_NAME --query cluster.arn (the name of a kubeconfig's context need not be " +
		"the ARN)"
	managed, err := parseEKS(arn)
	if err != nil {
		return fail("O31", ask, "the cluster's ARN is malformed: %s", err).
			with(differs(arnAnnotation, arn, "arn:<partition>:eks:<region>:<account>:cluster/<name>"))
	}
	if hubARN == "" {
		return unknown("the hub's own ARN is not known, so the role's name cannot be checked", "pass it: "+ask).
			with(same(suffixAnnotation, suffix))
	}
	hub, err := parseEKS(hubARN)
	if err != nil {
		return fail("O31", ask, "the hub's ARN is malformed: %s", err).
			with(differs("hub", hubARN, "arn:<partition>:eks:<region>:<account>:cluster/<name>"))
	}
	if want := roleSuffix(hub, managed); suffix != want {
		return fail("O32", "join again with the ARNs of this hub and this cluster",
			"the role's suffix is that of another hub or of another cluster").
			with(differs(suffixAnnotation, suffix, want), same("hub", hubARN), same("cluster", arn))
	}
	if f, twice := e.sharedARN(ctx, arn); twice {
		return f
	}
	return e.tryRole(ctx, hub, hubARN, fmt.Sprintf("arn:%s:iam::%s:role/ocm-hub-%s", hub.partition, hub.account, suffix))
}

// sharedARN finds a second ManagedCluster that claims the same cluster: the hub gives only one of them its access.
func (e *enrolment) sharedARN(ctx context.Context, arn string) (Finding, bool) {
	items, _, err := listObjects(ctx, e.Hub, clusterAPI, "ManagedCluster")
	if err != nil {
		return Finding{}, false // the right to list is not needed for the rest
	}
	for i := range items {
		if items[i].GetName() != e.ClusterName && items[i].GetAnnotations()[arnAnnotation] == arn {
			return fail("O35", "kubectl delete managedcluster UNWANTED_CLUSTER",
				"another ManagedCluster claims the same cluster of EKS: only one of them gets access").
				with(differs(arnAnnotation, arn+" of "+items[i].GetName()+" too", "of "+e.ClusterName+" alone")), true
		}
	}
	return Finding{}, false
}

func (e *enrolment) tryRole(ctx context.Context, hub clusterOfEKS, hubARN, role string) Finding {
	assume := "as the cluster's agent: aws sts assume-role --role-session-name wid --role-arn " + shell.Word(role, "ROLE_ARN")
	describe := fmt.Sprintf("aws eks describe-access-entry --region %s --cluster-name %s --principal-arn %s",
		shell.Word(hub.region, "REGION"), shell.Word(hub.name, "HUB_NAME"), shell.Word(role, "ROLE_ARN"))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if e.AssumeRole != nil {
		err := until(ctx, func() error { return e.AssumeRole(ctx, role) }, gaveUp)
		if ctx.Err() != nil {
			return unknown("whether the role that the hub made for the cluster can be assumed was not answered in time", assume)
		}
		if err != nil {
			f := fail("O33", assume, "the role that the hub made for the cluster cannot be assumed: %s", shown(messageOf(err)))
			f.Causes = []string{"its trust policy wants four tags on the caller (aws:PrincipalTag), which the agent's role lacks",
				"the hub has not made the role: see enrolment-accept",
				"it was made a moment ago: IAM takes a minute"}
			return f.with(same("role", role))
		}
	}
	if e.DescribeAccessEntry != nil {
		found := false
		groups, err := patiently(ctx, func() (groups []string, err error) {
			groups, found, err = e.DescribeAccessEntry(ctx, hubARN, role)
			return groups, err
		})
		want := "open-cluster-management:" + e.ClusterName
		switch {
		case err != nil:
			return unknown("the hub's access entry of the role cannot be read: "+shown(messageOf(err)), describe)
		case !found:
			return fail("O34", "have the hub make it again: "+e.accept(),
				"the hub has no access entry for the role: its tokens get 401").with(differs("access entry", "none", role))
		case !slices.Contains(groups, want):
			return fail("O34", "have the hub make it again: aws eks delete-access-entry, then "+e.accept(),
				"the hub's access entry of the role lacks the cluster's group").
				with(differs("groups", strings.Join(groups, ", "), want))
		}
	}
	if e.AssumeRole == nil || e.DescribeAccessEntry == nil {
		return unknown("annotations and role name fit; whether the role can be assumed and the hub admits it was not tried",
			assume+"\n"+describe).with(same("role", role))
	}
	return pass("the cluster can assume its role, and the hub admits that; an entry of a role that was re-created since " +
		"looks the same").with(same("role", role))
}
