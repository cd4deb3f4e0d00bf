"""Setting names of common frameworks, to detect typos.

Names of several releases are included: a renamed setting is not a typo.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TRAINING_ARGUMENTS = _words(
    """
    accelerator_config adafactor adam_beta1 adam_beta2 adam_epsilon auto_find_batch_size
    average_tokens_across_devices batch_eval_metrics bf16 bf16_full_eval data_seed dataloader_drop_last
    dataloader_in_order dataloader_multiprocessing_context dataloader_num_workers dataloader_persistent_workers
    dataloader_pin_memory dataloader_prefetch_factor ddp_backend ddp_broadcast_buffers ddp_bucket_cap_mb
    ddp_find_unused_parameters ddp_static_graph ddp_timeout debug deepspeed disable_tqdm dispatch_batches do_eval
    do_predict do_train enable_jit_checkpoint eval_accumulation_steps eval_delay eval_do_concat_batches
    eval_on_start eval_steps eval_strategy eval_use_gather_object evaluate_during_training evaluation_strategy fp16
    fp16_backend fp16_full_eval fp16_opt_level fsdp fsdp_config fsdp_min_num_params
    fsdp_transformer_layer_cls_to_wrap full_determinism generation_config generation_max_length generation_num_beams
    gradient_accumulation_steps gradient_checkpointing gradient_checkpointing_kwargs greater_is_better
    group_by_length half_precision_backend hub_always_push hub_model_id hub_private_repo hub_revision hub_strategy
    hub_token ignore_data_skip include_for_metrics include_inputs_for_metrics include_num_input_tokens_seen
    include_tokens_per_second jit_mode_eval label_names label_smoothing_factor learning_rate length_column_name
    liger_kernel_config load_best_model_at_end local_rank log_level log_level_replica log_on_each_node logging_dir
    logging_first_step logging_nan_inf_filter logging_num_input_tokens_seen logging_steps logging_strategy
    lr_scheduler_kwargs lr_scheduler_type max_grad_norm max_steps metric_for_best_model mp_parameters
    neftune_noise_alpha no_cuda num_train_epochs optim optim_args optim_target_modules output_dir
    overwrite_output_dir parallelism_config past_index per_device_eval_batch_size per_device_train_batch_size
    per_gpu_eval_batch_size per_gpu_train_batch_size predict_with_generate prediction_loss_only project push_to_hub
    push_to_hub_model_id push_to_hub_organization push_to_hub_token ray_scope remove_unused_columns report_to
    restore_callback_states_from_checkpoint resume_from_checkpoint run_name save_on_each_node save_only_model
    save_safetensors save_steps save_strategy save_total_limit seed sharded_ddp skip_memory_metrics sortish_sampler
    split_batches tf32 torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps torchdynamo
    tpu_metrics_debug tpu_num_cores trackio_bucket_id trackio_space_id trackio_static_space_id
    train_sampling_strategy use_cache use_cpu use_ipex use_legacy_prediction_loop use_liger_kernel use_mps_device
    warmup_ratio warmup_steps weight_decay xpu_backend
    """
)
"""`TrainingArguments` and `Seq2SeqTrainingArguments` of transformers."""

EXAMPLE_SCRIPTS = _words(
    """
    activation_dropout attention_dropout audio_column_name block_size cache_dir checkpointing_steps config_name
    config_overrides dataset_config_name dataset_name do_lower_case doc_stride eval_metrics eval_split_name
    forced_bos_token freeze_feature_encoder ignore_mismatched_sizes ignore_pad_token_for_loss image_column_name
    image_processor_name keep_linebreaks label_all_tokens label_column label_column_name lang language layerdrop
    line_by_line low_cpu_mem_usage mask_time_prob max_answer_length max_duration_in_seconds max_eval_samples
    max_predict_samples max_seq_length max_source_length max_train_samples max_train_steps metric_name
    min_duration_in_seconds mlm_probability model_type n_best_size null_score_diff_threshold num_beams
    num_warmup_steps num_workers overwrite_cache pad_to_max_length preprocessing_num_workers remove_columns
    remove_splits resize_position_embeddings return_entity_level_metrics shuffle_train_dataset source_lang
    source_prefix summary_column target_lang task task_name test_file text_column text_column_name
    text_column_names token tokenizer_name train_dir train_file train_split_name train_val_split use_auth_token
    use_fast_tokenizer use_slow_tokenizer val_max_target_length validation_dir validation_file
    validation_split_percentage version_2_with_negative with_tracking
    """
)
"""Model and data arguments of transformers' example scripts."""

TRL = _words(
    """
    activation_offloading assistant_only_loss attn_implementation beta bnb_4bit_quant_storage bnb_4bit_quant_type
    cache_implementation cast_lm_head_to_fp32 center_rewards_coefficient chars_per_token chat_template_kwargs
    chat_template_path cliprange cliprange_value completion_only_loss cpo_alpha dataset_batch_size dataset_config
    dataset_kwargs dataset_num_proc dataset_streaming dataset_test_split dataset_text_field dataset_train_split
    datasets delta desirable_weight disable_dropout discopop_tau ds3_gather_for_generation dtype entropy_coef
    entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target eos_token epsilon epsilon_high eval_packing
    f_alpha_divergence_coef f_divergence_type force_use_ref_model gamma generate_during_eval generation_batch_size
    generation_kwargs gradient_checkpointing_use_reentrant ignore_bias_buffers importance_sampling_level
    is_encoder_decoder kl_coef label_pad_token_id label_smoothing lam ld_alpha lmbda load_in_4bit load_in_8bit
    log_completions log_completions_hub_repo log_multimodal log_unique_prompts lora_alpha lora_dropout
    lora_modules_to_save lora_r lora_target_modules lora_target_parameters lora_task_type loss_type loss_weights
    mask_truncated_completions max_completion_length max_length max_prompt_length max_target_length
    max_tool_calling_iterations min_p missing_eos_penalty model_adapter_name model_init_kwargs model_name_or_path
    model_revision multi_objective_aggregation normalize_advantages num_completions_to_print num_generations
    num_generations_eval num_iterations num_mini_batches num_of_sequences num_ppo_epochs off_policy_mask_threshold
    packing packing_strategy pad_to_multiple_of pad_token padding_free padding_value precompute_ref_batch_size
    precompute_ref_log_probs ref_adapter_name ref_model_mixup_alpha ref_model_sync_steps reference_free
    repetition_penalty response_length reward_clip_range reward_model_path reward_weights router_aux_loss_coef
    rpo_alpha sapo_temperature_neg sapo_temperature_pos scale_rewards sft_model_path shuffle_dataset simpo_gamma
    steps_per_generation stop_token streaming sync_ref_model teacher_model_init_kwargs teacher_model_name_or_path
    teacher_model_revision temperature test_split_size top_entropy_quantile top_k top_p torch_dtype total_episodes
    transformers_continuous_batching_config truncation_mode trust_remote_code undesirable_weight
    use_adaptive_entropy use_bias_correction_kl use_bnb_nested_quant use_dora use_liger use_peft use_rslora
    use_transformers_continuous_batching use_transformers_paged use_vllm use_weighting vespo_k_neg vespo_k_pos
    vespo_lambda_neg vespo_lambda_pos vf_coef vllm_enable_sleep_mode vllm_gpu_memory_utilization vllm_group_port
    vllm_importance_sampling_cap vllm_importance_sampling_clip_max vllm_importance_sampling_clip_min
    vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_max_model_length vllm_mode
    vllm_model_impl vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout
    vllm_structured_outputs_regex vllm_tensor_parallel_size whiten_rewards
    """
)
"""Additions of trl's configs and scripts."""

LORA = _words(
    """
    alora_invocation_tokens alpha_pattern arrow_config auto_mapping base_model_name_or_path bias corda_config
    enable_lora ensure_weight_tying eva_config exclude_modules fan_in_fan_out inference_mode init_lora_weights
    kasa_config layer_replication layers_pattern layers_to_transform loftq_config lora_alpha lora_bias lora_dropout
    lora_ga_config megatron_config megatron_core merge_weights modules_to_save monteclora_config peft_type
    peft_version qalora_group_size r rank_pattern revision runtime_config target_modules target_parameters task_type
    trainable_token_indices use_bdlora use_dora use_qalora use_rslora velora_config
    """
)
"""`LoraConfig` of peft."""

QUANTIZATION = _words(
    """
    bnb_4bit_compute_dtype bnb_4bit_quant_storage bnb_4bit_quant_type bnb_4bit_use_double_quant
    llm_int8_enable_fp32_cpu_offload llm_int8_has_fp16_weight llm_int8_skip_modules llm_int8_threshold load_in_4bit
    load_in_8bit quant_method
    """
)
"""`BitsAndBytesConfig` of transformers."""

LIGHTNING_TRAINER = _words(
    """
    accelerator accumulate_grad_batches amp_backend amp_level auto_lr_find auto_scale_batch_size
    automatic_optimization barebones benchmark callbacks check_val_every_n_epoch checkpoint_callback
    default_root_dir detect_anomaly deterministic devices distributed_backend enable_autolog_hparams
    enable_checkpointing enable_model_summary enable_progress_bar fast_dev_run flush_logs_every_n_steps gpus
    gradient_clip_algorithm gradient_clip_val inference_mode ipus limit_predict_batches limit_test_batches
    limit_train_batches limit_val_batches log_every_n_steps log_gpu_memory logger max_epochs max_steps max_time
    min_epochs min_steps model_registry move_metrics_to_cpu multiple_trainloader_mode num_nodes num_processes
    num_sanity_val_steps overfit_batches plugins precision prepare_data_per_node process_position profiler
    progress_bar_refresh_rate reload_dataloaders_every_epoch reload_dataloaders_every_n_epochs replace_sampler_ddp
    resume_from_checkpoint stochastic_weight_avg strategy sync_batchnorm terminate_on_nan tpu_cores track_grad_norm
    truncated_bptt_steps use_distributed_sampler val_check_interval weights_save_path weights_summary
    """
)
"""`Trainer` of Lightning."""

ACCELERATOR = _words(
    """
    cpu dataloader_config deepspeed_plugin deepspeed_plugins device_placement dispatch_batches dynamo_backend
    dynamo_plugin even_batches fp16 fsdp_plugin gradient_accumulation_plugin gradient_accumulation_steps
    kwargs_handlers log_with logging_dir megatron_lm_plugin mixed_precision non_blocking parallelism_config
    project_config project_dir rng_types split_batches step_scheduler_with_optimizer torch_tp_plugin
    use_seedable_sampler
    """
)
"""`Accelerator` of accelerate."""

ACCELERATE_FILE = _words(
    """
    command_file commands compute_environment debug deepspeed_config deepspeed_hostfile deepspeed_multinode_launcher
    distributed_type downcast_bf16 dynamo_config enable_cpu_affinity fp8_config fsdp_config
    fsdp_transformer_layer_cls_to_wrap gpu_ids gradient_accumulation_steps gradient_clipping ipex_config
    machine_rank main_process_ip main_process_port main_training_function megatron_lm_config mixed_precision
    mpirun_config num_cpu_threads_per_process num_machines num_processes offload_optimizer_device
    offload_param_device parallelism_config rdzv_backend same_network tpu_env tpu_name tpu_use_cluster tpu_use_sudo
    tpu_vm tpu_zone use_cpu zero3_init_flag zero3_save_16bit_model zero_stage
    """
)
"""Config file of accelerate."""

LAUNCHERS = _words(
    """
    autotuning aws_access_key_id aws_secret_access_key config_file cpu debug deepspeed_config_file
    deepspeed_exclusion_filter deepspeed_hostfile deepspeed_inclusion_filter deepspeed_moe_layer_cls_names
    deepspeed_multinode_launcher downcast_bf16 dynamo_backend dynamo_mode dynamo_use_dynamic dynamo_use_fullgraph
    dynamo_use_regional_compilation enable_cpu_affinity enable_each_rank_log env exclude force_multi
    fp8_amax_compute_algo fp8_amax_history_len fp8_backend fp8_enable_fsdp_float8_all_gather fp8_format fp8_interval
    fp8_margin fp8_opt_level fp8_override_linear_precision fp8_pad_inner_dim fp8_use_autocast_during_eval
    fsdp_activation_checkpointing fsdp_activation_checkpointing_offload fsdp_auto_wrap_policy fsdp_backward_prefetch
    fsdp_cpu_ram_efficient_loading fsdp_forward_prefetch fsdp_min_num_params fsdp_offload_params
    fsdp_reshard_after_forward fsdp_sharding_strategy fsdp_state_dict_type fsdp_sync_module_states
    fsdp_transformer_layer_cls_to_wrap fsdp_use_orig_params fsdp_version gpu_ids gradient_accumulation_steps
    gradient_clipping h help hostfile include launcher local_addr local_ranks_filter log_dir
    log_line_prefix_template logs_specs m machine_rank main_process_ip main_process_port main_training_function
    master_addr master_port max_restarts megatron_lm_attention_backend megatron_lm_attention_dropout
    megatron_lm_attention_softmax_in_fp32 megatron_lm_calculate_per_token_loss megatron_lm_context_parallel_size
    megatron_lm_decoder_last_pipeline_num_layers megatron_lm_eod_mask_loss megatron_lm_expert_model_parallel_size
    megatron_lm_expert_tensor_parallel_size megatron_lm_gradient_clipping megatron_lm_hidden_dropout
    megatron_lm_no_load_optim megatron_lm_no_save_optim megatron_lm_num_micro_batches
    megatron_lm_optimizer_cpu_offload megatron_lm_overlap_cpu_optimizer_d2h_h2d megatron_lm_pp_degree
    megatron_lm_recompute_activations megatron_lm_recompute_granularity megatron_lm_recompute_method
    megatron_lm_recompute_num_layers megatron_lm_sequence_parallelism megatron_lm_tp_degree
    megatron_lm_use_custom_fsdp megatron_lm_use_distributed_optimizer megatron_lm_use_precision_aware_optimizer
    megatron_lm_use_rotary_position_embeddings mixed_precision module monitor_interval mpirun_hostfile multi_gpu
    nnodes no_local_rank no_python no_tpu_cluster node_rank nproc_per_node num_cpu_threads_per_process num_gpus
    num_machines num_nodes num_processes offload_optimizer_device offload_optimizer_nvme_path offload_param_device
    offload_param_nvme_path parallelism_config_cp_backend parallelism_config_cp_comm_strategy
    parallelism_config_cp_size parallelism_config_dp_replicate_size parallelism_config_dp_shard_size
    parallelism_config_sp_attn_implementation parallelism_config_sp_backend parallelism_config_sp_seq_length
    parallelism_config_sp_seq_length_is_variable parallelism_config_sp_size parallelism_config_tp_size q quiet
    rdzv_backend rdzv_conf rdzv_endpoint rdzv_id redirects role same_network save_pid standalone start_method t tee
    tpu tpu_cluster tpu_use_sudo use_deepspeed use_env use_fsdp use_megatron_lm use_parallelism_config vm
    zero3_init_flag zero3_save_16bit_model zero_stage
    """
)
"""Options of torchrun, `accelerate launch` and deepspeed, before the script."""

DEEPSPEED = _words(
    """
    activation_checkpointing aio amp autotuning bf16 bfloat16 checkpoint comet comms_logger communication_data_type
    compile compression_training csv_monitor curriculum_learning data_efficiency data_sampling data_types
    disable_allgather dump_state eigenvalue elasticity flops_profiler fp16 gradient_accumulation_dtype
    gradient_accumulation_steps gradient_clipping gradient_predivide_factor graph_harvesting hybrid_engine
    load_universal_checkpoint memory_breakdown monitor_config nebula optimizer pipeline prescale_gradients
    progressive_layer_drop scheduler seq_parallel_communication_data_type sparse_attention sparse_gradients
    steps_per_print tensor_parallel tensorboard timers torch_autocast train_batch_size
    train_micro_batch_size_per_gpu use_data_before_expert_parallelism wall_clock_breakdown wandb weight_quantization
    zero_allow_untested_optimizer zero_force_ds_cpu_optimizer zero_optimization
    """
)
"""DeepSpeed config, top level."""

ZERO = _words(
    """
    allgather_bucket_size allgather_partitions contiguous_gradients cpu_offload cpu_offload_params
    cpu_offload_use_pin_memory elastic_checkpoint gather_16bit_weights_on_model_save grad_hooks
    ignore_unused_parameters leaf_module legacy_stage1 load_from_fp32_weights log_trace_cache_warnings
    max_live_parameters max_reuse_distance memory_efficient_linear mics_hierarchical_params_gather mics_shard_size
    model_persistence_threshold offload_optimizer offload_param overlap_comm override_module_apply
    param_persistence_threshold pipeline_loading_checkpoint prefetch_bucket_size reduce_bucket_size reduce_scatter
    round_robin_gradients stage stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save
    stage3_max_live_parameters stage3_max_reuse_distance stage3_model_persistence_threshold
    stage3_module_granularity_threshold stage3_param_persistence_threshold stage3_prefetch_bucket_size
    stage3_use_all_reduce_for_fetch_params sub_group_size use_all_reduce_for_fetch_params zero_hpz_partition_size
    zero_quantized_gradients zero_quantized_nontrainable_weights zero_quantized_weights
    """
)
"""`zero_optimization` of DeepSpeed."""

HALF_SECTIONS = _words(
    """
    auto_cast bf16_master_weights_and_grads bf16_optimizer_states check_grad_overflow consecutive_hysteresis enabled
    fp16_master_weights_and_grads hysteresis immediate_grad_update initial_scale_power loss_scale loss_scale_factor
    loss_scale_window min_loss_scale opt_level
    """
)
"""`fp16` and `bf16` sections of DeepSpeed."""

LLAMA_FACTORY = _words(
    """
    adapter_name_or_path add_special_tokens add_tokens additional_target badam_mode buffer_size compute_accuracy
    create_new_adapter cutoff_len dataset dataset_dir default_system disable_gradient_checkpointing
    disable_shuffling double_quantization dpo_label_smoothing enable_liger_kernel enable_thinking eval_dataset
    export_dir finetuning_type flash_attn freeze_language_model freeze_multi_modal_projector
    freeze_trainable_layers freeze_trainable_modules freeze_vision_tower galore_layerwise galore_rank galore_scale
    galore_target image_max_pixels image_min_pixels infer_backend interleave_probs kto_chosen_weight lora_rank
    lora_target loraplus_lr_ratio mask_history max_samples media_dir mix_strategy moe_aux_loss_coef neat_packing
    new_special_tokens pissa_init placement_strategy plot_loss ppo_buffer_size ppo_epochs pref_beta pref_ftx
    pref_loss preprocessing_batch_size pure_bf16 quantization_bit quantization_method quantization_type
    ray_num_workers ray_run_name ray_storage_path ref_model ref_model_adapters resize_vocab resources_per_worker
    reward_model rope_scaling shift_attn split_special_tokens stage swanlab_mode swanlab_project swanlab_run_name
    template tokenized_path tool_format train_mm_proj_only train_on_prompt upcast_layernorm upcast_lmhead_output
    use_adam_mini use_apollo use_badam use_galore use_llama_pro use_mca use_muon use_reentrant_gc use_swanlab
    use_unsloth use_unsloth_gc val_size video_fps video_max_pixels video_maxlen video_min_pixels
    """
)
"""Additions of LLaMA-Factory to `TrainingArguments`."""

AXOLOTL = _words(
    """
    adam_beta3 adam_epsilon2 adapter added_tokens_overrides auto_resume_from_checkpoints base_model
    base_model_config base_model_ignore_patterns batch_size better_transformer bfloat16 bnb_config_kwargs
    chat_template chat_template_jinja chunked_cross_entropy context_parallel_size cosine_min_lr_ratio
    curriculum_sampling cut_cross_entropy dataset_keep_in_memory dataset_prepared_path dataset_processes
    default_system_message do_bench_eval dp_shard_size dpo_beta early_stopping_patience embeddings_skip_upcast
    eval_batch_size eval_max_new_tokens eval_sample_packing eval_table_size evals_per_epoch excess_length_strategy
    flash_attention flash_attn_cross_entropy flash_attn_fuse_mlp flash_attn_fuse_qkv flash_attn_rms_norm
    flash_optimum float16 gptq gptq_disable_exllama is_falcon_derived_model is_llama_derived_model
    is_mistral_derived_model is_qwen_derived_model kto_desirable_weight liger_fused_linear_cross_entropy
    liger_glu_activation liger_rms_norm liger_rope liger_swiglu lisa_n_layers lisa_step_interval
    lora_fan_in_fan_out lora_mlp_kernel lora_model_dir lora_o_kernel lora_on_cpu lora_qkv_kernel lora_target_linear
    loss_watchdog_patience loss_watchdog_threshold lr_div_factor lr_quadratic_warmup lr_scheduler merge_lora
    micro_batch_size mlflow_experiment_name model_quantization_config model_type noisy_embedding_alpha num_epochs
    optimizer orpo_alpha overrides_of_model_config overrides_of_model_kwargs pad_to_sequence_len peft_use_dora
    peft_use_rslora plugins processor_type qat quantization relora_steps relora_warmup_steps
    resize_token_embeddings_to_32x rl rl_beta s2_attention sample_packing sample_packing_bin_size
    sample_packing_group_size save_first_step saves_per_epoch scaling_softmax sdp_attention sequence_len
    sequence_parallel_degree shuffle_merged_datasets skip_prepare_dataset special_tokens strict
    tensor_parallel_size test_datasets tokenizer_config tokenizer_type tokens train_on_inputs trl
    unfrozen_parameters unsloth_lora_mlp use_mlflow use_ray use_tensorboard val_set_size wandb_entity
    wandb_log_model wandb_mode wandb_name wandb_project wandb_run_id wandb_watch xformers_attention
    """
)
"""Config of Axolotl."""
