package server_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/server"
)

func ExampleTrustPolicy() {
	binding := &v1alpha1.IAMBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reports"},
		Spec: v1alpha1.IAMBindingSpec{
			AWS:               v1alpha1.AWSRole{RoleARN: "arn:aws:iam::123456789012:role/S3Access"},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "reporting-app"},
		},
	}
	policy, err := server.TrustPolicy("prod", "arn:aws:iam::123456789012:role/pod-identity", binding)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(string(policy))
	// Output:
	// {
	//   "Version": "2012-10-17",
	//   "Statement": [
	//     {
	//       "Effect": "Allow",
	//       "Principal": {
	//         "AWS": "arn:aws:iam::123456789012:role/pod-identity"
	//       },
	//       "Action": "sts:AssumeRole",
	//       "Condition": {
	//         "StringEquals": {
	//           "sts:RoleSessionName": "prod.team-a.reporting-app"
	//         }
	//       }
	//     },
	//     {
	//       "Effect": "Allow",
	//       "Principal": {
	//         "AWS": "arn:aws:iam::123456789012:role/pod-identity"
	//       },
	//       "Action": "sts:TagSession",
	//       "Condition": {
	//         "StringEquals": {
	//           "aws:RequestTag/cluster": "prod",
	//           "aws:RequestTag/kubernetes-namespace": "team-a",
	//           "aws:RequestTag/kubernetes-service-account": "reporting-app"
	//         }
	//       }
	//     }
	//   ]
	// }
}
