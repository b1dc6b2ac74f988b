package v1alpha1_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// The administrator allows roles, and a team binds one of them to a
// ServiceAccount.
func Example() {
	allowed := &v1alpha1.IAMRoleAllowList{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName},
		Spec: v1alpha1.IAMRoleAllowListSpec{Rules: []v1alpha1.AllowRule{{
			Namespaces: []string{"team-a"},
			Roles:      []string{"arn:aws:iam::123456789012:role/team-a/*"},
		}}},
	}
	binding := &v1alpha1.IAMBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reporting"},
		Spec: v1alpha1.IAMBindingSpec{
			AWS:               v1alpha1.AWSRole{RoleARN: "arn:aws:iam::123456789012:role/team-a/reporting"},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "reporting"},
		},
	}
	fmt.Println(allowed.Allows(binding.Namespace, binding.Spec.AWS.RoleARN))
	fmt.Println(allowed.Allows("team-b", binding.Spec.AWS.RoleARN))
	// Output:
	// true
	// false
}
