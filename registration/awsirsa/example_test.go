package awsirsa_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

// The administrator of the managed cluster's account makes this role before the
// cluster joins.
func ExampleAgentRole() {
	hub, _ := awsirsa.ParseClusterARN("arn:aws:eks:eu-central-1:111111111111:cluster/hub")
	managed, _ := awsirsa.ParseClusterARN("arn:aws:eks:eu-west-1:222222222222:cluster/shop")
	role, err := awsirsa.AgentRole(hub, managed, "https://oidc.eks.eu-west-1.amazonaws.com/id/ABC", "", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(role.ARN)
	fmt.Println(string(role.Access))
	// Output:
	// arn:aws:iam::222222222222:role/ocm-managed-cluster-5e6856386691a476d9c610f8f3e37a3a
	// {"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"arn:aws:iam::111111111111:role/ocm-hub-5e6856386691a476d9c610f8f3e37a3a"}]}
}

// A program shows a person which cluster asks, and the role that the hub would
// create for it.
func ExampleClaim() {
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{
		awsirsa.OCMARNAnnotation: "arn:aws:eks:eu-west-1:222222222222:cluster/shop"}}}
	claim, ok, err := awsirsa.Claim(cluster)
	if !ok || err != nil {
		fmt.Println("the cluster does not register by AWS IAM", err)
		return
	}
	hub, _ := awsirsa.ParseClusterARN("arn:aws:eks:eu-central-1:111111111111:cluster/hub")
	managed, _ := awsirsa.ParseClusterARN(claim)
	fmt.Println(claim)
	fmt.Println(awsirsa.GrantedRoleARN(hub, managed))
	// Output:
	// arn:aws:eks:eu-west-1:222222222222:cluster/shop
	// arn:aws:iam::111111111111:role/ocm-hub-5e6856386691a476d9c610f8f3e37a3a
}
