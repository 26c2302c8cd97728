"""Mistakes that learning code is known for: where each would be made, and the test that sees it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A line as it is, and as it would be with the mistake; ``right`` occurs once in the file."""

    file: str
    right: str
    wrong: str
    test: str
    """Fails with the mistake, and passes without it."""


FAULTS = {
    "n-step window too long by one": Fault(
        "rlcli/losses/returns.py",
        "for _ in range(min(n, reward.shape[0])):",
        "for _ in range(min(n + 1, reward.shape[0])):",
        "tests/losses/test_losses_returns.py::test_n_step_windows_stop_at_life_loss_and_batch_end",
    ),
    "n-step bootstrap discounted once too little": Fault(
        "rlcli/replay/views.py",
        "0.0, discount**n_used)",
        "0.0, discount ** (n_used - 1))",
        "tests/replay/test_replay_streams.py::test_twelve_steps_with_two_ends_give_the_table_worked_out_by_hand",
    ),
    "n-step rewards without discount": Fault(
        "rlcli/replay/views.py",
        "@ discount ** np.arange(reward.shape[1])",
        "@ np.ones(reward.shape[1])",
        "tests/replay/test_replay_streams.py::test_twelve_steps_with_two_ends_give_the_table_worked_out_by_hand",
    ),
    "truncation taken for termination in replay": Fault(
        "rlcli/replay/views.py",
        "np.where((within & terminated).any(axis=1)",
        "np.where((within & (terminated | truncated)).any(axis=1)",
        "tests/algos/test_exact_problems.py::test_value_of_an_endless_task_cut_by_the_clock_is_ten",
    ),
    "truncation taken for termination in GAE": Fault(
        "rlcli/losses/returns.py",
        "successor = torch.where(terminated, zero, value[1:])",
        "successor = torch.where(terminated | truncated, zero, value[1:])",
        "tests/algos/test_exact_problems.py::test_value_of_an_endless_task_cut_by_the_clock_is_ten_by_a_policy",
    ),
    "GAE through an episode's end": Fault(
        "rlcli/losses/returns.py",
        "(valid & ~terminated & ~truncated).to(reward.dtype)",
        "valid.to(reward.dtype)",
        "tests/losses/test_losses_returns.py::test_terminated_step_does_not_bootstrap_and_cuts",
    ),
    "importance weights dropped": Fault(
        "rlcli/algos/q_learning.py",
        "(batch.weight.to(self._device) * judged.loss).mean()",
        "judged.loss.mean()",
        "tests/algos/test_q_learning.py::test_importance_weights_multiply_the_losses",
    ),
    "importance weights of sequences dropped": Fault(
        "rlcli/algos/r2d1.py",
        "masked_mean(judged.loss, judged.valid, weight)",
        "masked_mean(judged.loss, judged.valid)",
        "tests/algos/test_r2d1.py::test_loss_is_the_weighted_mean_and_priorities_are_told",
    ),
    "priorities not updated": Fault(
        "rlcli/algos/q_learning.py",
        "self._replay.update_priorities(batch.row, batch.env, judged.priority)",
        "pass",
        "tests/algos/test_q_learning.py::test_prioritized_replay_draws_by_the_priorities_that_learning_gave",
    ),
    "priorities of sequences not updated": Fault(
        "rlcli/algos/r2d1.py",
        "self._replay.update_priorities(batch.row, batch.env, priority)",
        "pass",
        "tests/algos/test_r2d1.py::test_priorities_of_drawn_sequences_reach_the_replay",
    ),
    "DQN's target from the online network": Fault(
        "rlcli/algos/dqn.py",
        "q_next = _values(target, batch.next_obs, draws)",
        "q_next = _values(online, batch.next_obs, draws)",
        "tests/algos/test_dqn.py::test_loss_equals_a_slow_reference",
    ),
    "DDPG's target from the online critic": Fault(
        "rlcli/algos/ddpg.py",
        "self.critic_target.module(batch.next_obs",
        "self.critic(batch.next_obs",
        "tests/algos/test_actor_critic.py::test_ddpg_targets_equal_a_slow_reference",
    ),
    "double DQN judged by the network that chooses": Fault(
        "rlcli/losses/value.py",
        "q_target_next.gather(1, greedy)",
        "q_online_next.gather(1, greedy)",
        "tests/losses/test_losses_value.py::test_double_q_target_lets_the_online_net_choose_and_the_target_net_judge",
    ),
    "C51's projection unclipped": Fault(
        "rlcli/losses/categorical_value.py",
        "z_from.clamp(z[0], z[-1])[:, None, :]",
        "z_from[:, None, :]",
        "tests/losses/test_losses_categorical_value.py::"
        "test_mass_goes_to_both_neighbours_and_beyond_the_ends_to_the_last_atom",
    ),
    "IQN's quantiles upside down": Fault(
        "rlcli/losses/quantile.py",
        "(delta.detach() < 0)",
        "(delta.detach() > 0)",
        "tests/losses/test_losses_quantile.py::test_descent_finds_the_quantiles_of_the_samples",
    ),
    "log-probability without the tanh": Fault(
        "rlcli/models/squashed_gaussian.py",
        "(gaussian - correction).sum(dim=-1)",
        "gaussian.sum(dim=-1)",
        "tests/models/test_squashed_gaussian.py::test_log_prob_equals_a_numerical_change_of_variables",
    ),
    "TD3 without noise in its target": Fault(
        "rlcli/algos/td3.py",
        "noise = self._noise_std * ",
        "noise = 0.0 * ",
        "tests/algos/test_actor_critic.py::test_td3_targets_equal_a_slow_reference",
    ),
    "SAC's alpha learned with the wrong sign": Fault(
        "rlcli/losses/actor_critic.py",
        "return -log_alpha * (",
        "return log_alpha * (",
        "tests/algos/test_actor_critic.py::test_alpha_rises_for_a_policy_too_sure_and_falls_for_one_unsure",
    ),
    "SAC's entropy counted with the wrong sign": Fault(
        "rlcli/losses/actor_critic.py",
        "torch.minimum(q1, q2) - alpha * log_prob",
        "torch.minimum(q1, q2) + alpha * log_prob",
        "tests/algos/test_exact_problems.py::test_entropy_counts_in_the_value_by_alpha",
    ),
    "recurrent state kept over an episode's start when acting": Fault(
        "rlcli/samplers/recurrence.py",
        "if state is None or not begins.any():",
        "if True:",
        "tests/algos/test_recurrent_policy.py::test_training_gives_the_actions_the_probabilities_that_acting_gave_them",
    ),
    "recurrent state kept over an episode's start when training": Fault(
        "rlcli/models/recurrent.py",
        "kept = ~begins[start][:, None]",
        "kept = torch.ones_like(begins[start])[:, None]",
        "tests/models/test_recurrent.py::test_sequence_equals_single_steps_with_restarts_by_hand",
    ),
    "gradients through the burn-in": Fault(
        "rlcli/algos/r2d1.py",
        "with torch.no_grad():\n                state = network",
        "with torch.enable_grad():\n                state = network",
        "tests/algos/test_r2d1.py::test_burn_in_takes_no_gradient_and_the_trained_rows_do",
    ),
    "values of sequences bootstrapped on the squashed scale": Fault(
        "rlcli/losses/value_rescale.py",
        "n_step_return(reward, unscale(value, eps),",
        "n_step_return(reward, value,",
        "tests/algos/test_exact_problems.py::test_value_of_an_endless_task_cut_by_the_clock_is_ten_on_the_squashed_scale",
    ),
    "old log-probabilities computed anew": Fault(
        "rlcli/algos/ppo.py",
        "torch.where(valid, targets.log_prob, log_prob.detach())",
        "log_prob.detach()",
        "tests/algos/test_ppo.py::test_the_noted_log_probs_stay_the_old_ones_through_all_epochs",
    ),
    "advantages normalised over fillers too": Fault(
        "rlcli/losses/policy.py",
        "mean = masked_mean(advantage, valid)",
        "mean = advantage.mean()",
        "tests/algos/test_recurrent_policy.py::"
        "test_policy_loss_equals_that_of_a_slow_reference_with_advantages_normalised_over_valid_rows",
    ),
}
