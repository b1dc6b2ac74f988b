module github.com/workloadid/workloadid/test/clouds

go 1.26.0

replace github.com/workloadid/workloadid => ../..

require github.com/workloadid/workloadid v0.0.0
