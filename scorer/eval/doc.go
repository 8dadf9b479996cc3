// Package eval measures what a router is worth on judged examples.
//
// A [Sample] holds, for every judged task, the predicted probability and the true
// label of each head. [Measure] turns it into a [Report]: how well each head
// separates right from wrong (AUC) and how true its probabilities are (ECE,
// reliability), what quality the router buys for what share of strong calls (APGR,
// CPT, oracle gap, saving, P-AUCCC), what each tolerance would have cost, and all
// of it by group and beside the routers that need no learning, with bootstrap
// intervals. [WriteTable], [WriteJSON] and [WriteHTML] print reports.
//
// # Definitions
//
// Over n tasks let w, s be 0 or 1 as the weak, the strong model is right, p_w, p_s
// the predicted probabilities. A router orders the tasks by p_s - p_w. Q(q) is the
// mean correctness if the share q at the top goes to the strong model and the rest
// to the weak one, linear between the points k/n; within tasks of one score it is
// linear too, the mean over their orders. Q(0) is the quality of always-weak, Q(1)
// of always-strong.
//
//   - AUC: the probability that a right answer was scored above a wrong one, ties
//     counting half (Mann–Whitney).
//   - ECE: ten bins of equal width over [0,1]; the mean over the bins, weighted by
//     their tasks, of |mean probability - share of right answers| (Naeini et al.
//     2015; Guo et al. 2017). Even true probabilities have an ECE above 0 on a
//     finite sample; "perfect" is its mean when the labels are drawn from the
//     probabilities themselves, and "excess" is ECE less that.
//   - PGR(q) = (Q(q) - Q(0)) / (Q(1) - Q(0)), the performance gap recovered; APGR its
//     mean over q, the area by trapezoids; CPT(x) the least q with PGR(q) >= x (Ong et
//     al., "RouteLLM", 2024). Random has APGR 0.5.
//   - Oracle gap closed: (A - B) / (O - B) with A the quality of always taking the head
//     of the greater probability (tolerance 0), B the better of Q(0) and Q(1), and O the
//     mean of max(w, s).
//   - Saving at equal quality: with costs c_w < c_s a call and q* the least q with
//     Q(q) >= Q(1), 1 - (c_w + q*(c_s - c_w))/c_s.
//   - P-AUCCC, the area under the cost-correctness curve's Pareto front: the mean over
//     q of max over q' <= q of Q(q'). The cost is min-max scaled to [0,1], which with
//     two models makes it q. Unlike APGR it is in units of correctness. The field has
//     no one definition; this is ours.
//
// Routing figures need both labels; tasks with only one count for that head alone.
//
// Intervals are percentiles of a bootstrap over tasks (Efron 1979): a task that
// stands in several rows is drawn as a whole. Everything is deterministic for a
// seed.
package eval
