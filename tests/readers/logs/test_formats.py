"""Every text format, healthy and sick: lines in, points out."""

# ruff: noqa: E501 -- log lines stand here as they are written

from __future__ import annotations

import math
from typing import Any

import pytest

from readers.logs.reading_text import points_of, same, series_of

NAN, INF = math.nan, math.inf

POINTS: list[tuple[str, str, list[dict[str, Any]]]] = [
    (
        "transformers",
        (
            "{'loss': 1.9, 'grad_norm': 0.75, 'learning_rate': 2e-05, 'epoch': 0.5}\n"
            "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.6}\n"
        ),
        [
            {"loss": 1.9, "grad_norm": 0.75, "lr": 2e-05, "epoch": 0.5},
            {"loss": 0.0, "grad_norm": NAN, "lr": 1e-05, "epoch": 0.6},
        ],
    ),
    (
        "transformers",
        "{'loss': '4.125', 'grad_norm': 'nan', 'learning_rate': '1.5e-07', 'epoch': '0.25'}\n",
        [{"loss": 4.125, "grad_norm": NAN, "lr": 1.5e-07, "epoch": 0.25}],
    ),
    (
        "transformers",
        "  3%|▎         | 12/400 [00:05<02:41,  2.40it/s]{'loss': 3.5, 'learning_rate': 1e-4, 'epoch': 0.03}\n",
        [{"step": 12.0, "loss": 3.5, "lr": 1e-4, "epoch": 0.03}],
    ),
    (
        "ms-swift",
        '{"loss": 2e-08, "grad_norm": 0.5, "global_step/max_steps": "7/900", "elapsed_time": "3s"}\n',
        [{"step": 7.0, "loss": 2e-08, "grad_norm": 0.5}],
    ),
    (
        "json lines",
        '{"step": 71, "loss": NaN, "lr": 0.001}\n{"step": 72, "loss": -Infinity, "lr": 0.001}\n',
        [{"step": 71.0, "loss": NAN, "lr": 0.001}, {"step": 72.0, "loss": -INF, "lr": 0.001}],
    ),
    (
        "json lines",
        (
            '{"version": 1, "step": 4, "loss": 2.5, "grad_norm": 1.0, "lr": 0.1, "loss_scale": null, "decision": "accept"}\n'
            '{"version": 1, "step": 5, "loss": NaN, "grad_norm": NaN, "lr": 0.1, "loss_scale": null, "decision": "veto"}\n'
        ),
        [
            {"step": 4.0, "loss": 2.5, "grad_norm": 1.0, "lr": 0.1},
            {"step": 5.0, "loss": NAN, "grad_norm": NAN, "lr": 0.1, "skipped": True},
        ],
    ),
    (
        "transformers",
        "TrainOutput(global_step=40, training_loss=inf, metrics={'train_runtime': 3.4, 'epoch': 2.0})\n",
        [{"step": 40.0, "loss": INF}],
    ),
    ("transformers", "  train_loss               =     7.0125\n", [{"loss": 7.0125}]),
    (
        "deepspeed",
        (
            "[2024-05-06 07:08:09,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[3e-05, 3e-05], mom=[[0.9]]\n"
            "[2024-05-06 07:08:10,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=2, lr=[2e-05, 2e-05], mom=[[0.9]]\n"
            "[2024-05-06 07:08:11,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=30, skipped=2, lr=[1e-05, 1e-05], mom=[[0.9]]\n"
        ),
        [{"step": 10.0, "lr": 3e-05}, {"step": 20.0, "lr": 2e-05, "skipped": True}, {"step": 30.0, "lr": 1e-05}],
    ),
    (
        "deepspeed",
        (
            "[INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
            "Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1\n"
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n"
        ),
        [{"loss_scale": 65536.0, "skipped": True}, {"loss_scale": 32768.0, "skipped": True}],
    ),
    (
        "loss scaler",
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 4096.0\n",
        [{"loss_scale": 4096.0, "skipped": True}],
    ),
    (
        "loss scaler",
        (
            "2021-01-02 03:04:05 | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, "
            "setting loss scale to: 0.25\n"
        ),
        [{"loss_scale": 0.25, "skipped": True}],
    ),
    (
        "loss scaler",
        "WARNING: The grad norm is nan. Skipping updating the model.\n",
        [{"grad_norm": NAN, "skipped": True}],
    ),
    ("loss scaler", "Loss is nan, stopping training\n", [{"loss": NAN}]),
    ("loss scaler", "RuntimeError: grad_scale is too small, exiting: 9.3e-10\n", [{"loss_scale": 9.3e-10}]),
    (
        "megatron",
        (
            " iteration       10/     500 | consumed samples:  5120 | elapsed time per iteration (ms): 950.1 | learning rate: 1.500E-06 | "
            "global batch size:   512 | lm loss: 1.073241E+01 | loss scale: 65536.0 | grad norm: 12.5 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
            " iteration       11/     500 | consumed samples:  5632 | elapsed time per iteration (ms): 950.1 | learning rate: 1.500E-06 | "
            "global batch size:   512 | loss scale: 32768.0 | grad norm: 12.5 | "
            "number of skipped iterations:   1 | number of nan iterations:   0 |\n"
        ),
        [
            {"step": 10.0, "lr": 1.5e-06, "loss": 10.73241, "loss_scale": 65536.0, "grad_norm": 12.5},
            {"step": 11.0, "lr": 1.5e-06, "loss": NAN, "loss_scale": 32768.0, "grad_norm": 12.5, "skipped": True},
        ],
    ),
    (
        "megatron",
        (
            " iteration       10/     500 | consumed samples:  5120 | learning rate: 1.500E-06 | loss scale: 1.0 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        ),
        [{"step": 10.0, "lr": 1.5e-06, "loss": NAN, "loss_scale": 1.0}],
    ),
    (
        "megatron",
        (
            "  samples/sec: 12.5 | iteration 7/ 320 | elapsed time per iteration (ms): 9.1 | learning rate: 3.0E-05 | "
            "lm_loss: 9.5E+00 | number of nan iterations: 2 |\n"
        ),
        [{"step": 7.0, "lr": 3e-05, "loss": 9.5, "skipped": True}],
    ),
    (
        "fairseq",
        (
            "2020-01-02 03:04:05 | INFO | train_inner | epoch 002:      5 / 300 loss=7.25, ppl=152.2, wps=1000.5, ups=2, "
            "num_updates=305, lr=0.0001, gnorm=1.5, loss_scale=8, wall=10\n"
        ),
        [
            {
                "step": 305.0,
                "epoch": 2.0,
                "loss": 7.25,
                "throughput": 1000.5,
                "lr": 0.0001,
                "grad_norm": 1.5,
                "loss_scale": 8.0,
            }
        ],
    ),
    (
        "fairseq",
        (
            "| epoch 002  100 / 300 loss=nan (2.50), wps=96, lr=0.5, gnorm=nan\n"
            "| epoch 002 | train loss nan | train ppl nan | words/s    961 | lr 0.5 | gnorm nan\n"
        ),
        [
            {"step": 400.0, "epoch": 2.0, "loss": NAN, "throughput": 96.0, "lr": 0.5, "grad_norm": NAN},
            {"step": 400.0, "epoch": 2.0, "loss": NAN, "throughput": 961.0, "lr": 0.5, "grad_norm": NAN},
        ],
    ),
    (
        "fairseq",
        "2020-01-02 03:04:05 | INFO | train | epoch 001 | loss 8.5 | nll_loss 7.9 | num_updates 300 | lr 0.1 | gnorm 2.5 | wall 31\n",
        [{"step": 300.0, "epoch": 1.0, "loss": 8.5, "lr": 0.1, "grad_norm": 2.5}],
    ),
    (
        "nanogpt",
        (
            "iter 20: loss 3.7512, time 95.12ms, mfu 11.02%\niter 30: loss nan, time 95.12ms, mfu 11.02%\n"
            "step 30: train loss nan, val loss 4.5\n"
        ),
        [{"step": 20.0, "loss": 3.7512}, {"step": 30.0, "loss": NAN}, {"step": 30.0, "loss": NAN}],
    ),
    (
        "nanogpt",
        "iter 9 step 2: loss 1.5, iter time: 18.72ms (optimizer.step)\niter 10 step 2: loss 1.25, iter time: 18.72ms\n",
        [{"step": 9.0, "loss": 1.5}, {"step": 10.0, "loss": 1.25}],
    ),
    (
        "litgpt",
        "Epoch 2 | iter 52 step 13 | loss train: 1.125, val: n/a | iter time: 38.35 ms (step) remaining time: 0:01:41\n",
        [{"epoch": 2.0, "step": 52.0, "loss": 1.125}],
    ),
    (
        "progress bar",
        "Epoch 1:  50%|█████     | 9/18 [00:17<00:17,  1.97s/it, loss=nan, v_num=3]\n",
        [{"epoch": 1.0, "step": 27.0, "loss": NAN}],
    ),
    (
        "progress bar",
        (
            "steps:   0%|          | 0/800 [00:00<?, ?it/s]\rsteps:   1%|          | 8/800 [00:09<15:00,  1.14s/it, avr_loss=0.125]\r"
            "steps:   2%|▏         | 16/800 [00:18<1:15:00,  1.14s/it, avr_loss=nan]\n"
        ),
        [{"step": 8.0, "loss": 0.125}, {"step": 16.0, "loss": NAN}],
    ),
    (
        "torchtitan",
        (
            "[rank0]:[titan] 2025-01-02 03:04:05,678 - root - INFO - step:  8  loss:  5.5  grad_norm:  0.75  memory: 30.2GiB(31.7%)  "
            "tps: 1,234  tflops: 9.1  mfu: 40.1%\n"
        ),
        [{"step": 8.0, "loss": 5.5, "grad_norm": 0.75, "throughput": 1234.0}],
    ),
    (
        "openmmlab",
        (
            "2021-01-02 03:04:05,678 - mmdet - INFO - Epoch [2][50/600]\tlr: 2.5e-03, eta: 1 day, 2:03:04, time: 0.5, "
            "loss_cls: 0.5, loss_bbox: nan, loss: nan, grad_norm: 35.5\n"
            "2021-01-02 03:04:05,678 - mmdet - INFO - Epoch [2][100/600]\tlr: 2.5e-03, eta: 23:03:04, time: 0.5, "
            "loss_cls: 0.5, loss_bbox: 0.25, loss: 0.75, grad_norm: nan\n"
        ),
        [
            {"epoch": 2.0, "step": 650.0, "lr": 0.0025, "loss": NAN, "grad_norm": 35.5},
            {"epoch": 2.0, "step": 700.0, "lr": 0.0025, "loss": 0.75, "grad_norm": NAN},
        ],
    ),
    (
        "openmmlab",
        (
            "01/02 03:04:05 - mmengine - INFO - Epoch(train)  [1][ 50/735]  lr: 1.0e-03  eta: 0:10:00  time: 0.2  loss: 2.5  grad_norm: inf\n"
            "01/02 03:04:05 - mmengine - INFO - Iter(train) [   100/40000]  lr: 5e-03  loss: 1.5\n"
        ),
        [
            {"epoch": 1.0, "step": 50.0, "lr": 0.001, "loss": 2.5, "grad_norm": INF},
            {"step": 100.0, "lr": 0.005, "loss": 1.5},
        ],
    ),
    (
        "detectron",
        (
            "2019-01-02 03:04:05,678 maskrcnn_benchmark.trainer INFO: eta: 1 day, 0:00:01  iter: 40  loss: 1.25 (1.5)  "
            "loss_mask: 0.5 (0.6)  time: 0.5 (0.6)  lr: 0.005  max mem: 5000\n"
        ),
        [{"step": 40.0, "loss": 1.25, "lr": 0.005}],
    ),
    (
        "detectron",
        "[07/01 10:00:00 d2.utils.events]:  eta: 0:10:00  iter: 59  total_loss: nan  loss_cls: nan  time: 0.5  lr: 0.0003  max_mem: 2000M\n",
        [{"step": 59.0, "loss": NAN, "lr": 0.0003}],
    ),
    (
        "detectron",
        "Epoch: [1]  [  10/200]  eta: 0:20:00  lr: 0.000100  class_error: 90.1  loss: 38.5 (40.2)  loss_ce: 1.2 (1.3)  time: 0.6\n",
        [{"epoch": 1.0, "step": 210.0, "lr": 0.0001, "loss": 38.5}],
    ),
    (
        "opennmt",
        (
            "[2023-01-02 03:04:05,678 INFO] Step 50/90000; acc: 3.5; ppl: 9000.5; xent: 9.5; lr: 0.00001; sents: 9; "
            "bsz: 12/13/7; 500/550 tok/s; 14 sec;\n"
        ),
        [{"step": 50.0, "loss": 9.5, "lr": 1e-05, "throughput": 550.0}],
    ),
    (
        "icefall",
        (
            "2023-01-02 03:04:05,678 INFO [train.py:904] (0/2) Epoch 1, batch 50, loss[loss=nan, simple_loss=0.5, over 55.00 frames. ], "
            "tot_loss[loss=0.75, simple_loss=0.5, over 1e3 frames. ], batch size: 40, lr: 3.0e-03, grad_scale: 0.5\n"
        ),
        [{"epoch": 1.0, "step": 50.0, "loss": NAN, "lr": 0.003, "loss_scale": 0.5}],
    ),
    (
        "espnet",
        (
            "[host] 2022-01-02 03:04:05,678 (trainer:737) INFO: 2epoch:train:129-256batch: iter_time=0.001, loss_ctc=60.5, acc=0.5, "
            "loss=55.5, grad_norm=12.5, loss_scale=2.000, optim0_lr0=1.5e-06, train_time=0.5\n"
        ),
        [{"epoch": 2.0, "step": 256.0, "loss": 55.5, "grad_norm": 12.5, "loss_scale": 2.0, "lr": 1.5e-06}],
    ),
    (
        "keras",
        (
            "Epoch 2/5\n 10/100 [==>...........................] - ETA: 5s - loss: 0.5000 - accuracy: 0.7500\b\b\b\b"
            "\r100/100 [==============================] - 3s 25ms/step - loss: nan - accuracy: 0.1 - val_loss: nan\n"
        ),
        [{"epoch": 2.0, "step": 110.0, "loss": 0.5}, {"epoch": 2.0, "step": 200.0, "loss": NAN}],
    ),
    (
        "table",
        "Step\tTraining Loss\tValidation Loss\n500\tNo log\t0.5\n1000\tnan\tnan\n".replace("\t", "   "),
        [{"step": 1000.0, "loss": NAN}],
    ),
    (
        "ultralytics",
        (
            "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
            "      1/100      2.5G       1.25        0.5       0.25         45        640: 100%|██████████| 10/10 [00:05<00:00]\n"
            "      2/100      2.5G        nan        nan        nan         45        640: 100%|██████████| 10/10 [00:05<00:00]\n"
        ),
        [{"epoch": 1.0, "step": 10.0, "loss": 2.0}, {"epoch": 2.0, "step": 20.0, "loss": NAN}],
    ),
    (
        "plain",
        "step 30 | loss 1.5 | grad_norm  2.5\nstep 31 | loss nan | grad_norm  inf\n[val] step 31 | loss 1.0\n",
        [{"step": 30.0, "loss": 1.5, "grad_norm": 2.5}, {"step": 31.0, "loss": NAN, "grad_norm": INF}],
    ),
    (
        "plain",
        "Epoch 2: Training Loss: 99.5, Validation Loss: nan, BLEU: 0.00, chrF++: 0.10\n",
        [{"epoch": 2.0, "step": 2.0, "loss": 99.5}],
    ),
    ("plain", "Epoch [3/20], Step [100/500], Loss: 0.75\n", [{"epoch": 3.0, "step": 1100.0, "loss": 0.75}]),
    ("plain", "Train Epoch: 2 [640/60000 (1%)]\tLoss: 0.125\n", [{"epoch": 2.0, "step": 60640.0, "loss": 0.125}]),
    (
        "plain",
        "Epoch: [0][ 10/500]\tTime  0.5 ( 1.0)\tData  0.1 ( 0.2)\tLoss 6.5e+00 (7.0e+00)\tAcc@1   0.00 (  0.10)\n",
        [{"epoch": 0.0, "step": 10.0, "loss": 6.5}],
    ),
    ("plain", "INFO:root:iteration 400: loss = nan, lr = 0.001\n", [{"step": 400.0, "loss": NAN, "lr": 0.001}]),
    (
        "plain",
        "epoch 1 step 5 loss: tensor(nan, device='cuda:0', grad_fn=<NllLossBackward>)\n",
        [{"epoch": 1.0, "step": 5.0, "loss": NAN}],
    ),
    ("plain", "loss: 1,234.5\n", [{"loss": 1234.5}]),
    (
        "plain",
        "step    7/200 | loss 9.5 (+nanz)| norm 15.25 (+nanz)| lr 2.57E-06 | 512.21 ms | 57.1% bf16 MFU | 1023 tok/s\n",
        [{"step": 7.0, "loss": 9.5, "grad_norm": 15.25, "lr": 2.57e-06}],
    ),
    (
        "plain",
        "step:3 - actor/pg_loss:0.5 - actor/grad_norm:nan - actor/lr:1e-06 - critic/score/mean:0.25\n",
        [{"step": 3.0, "grad_norm": NAN, "lr": 1e-06}],
    ),
    (
        "progress bar",
        (
            "Epoch 0:   2%|▏| 20/900 [00:03<04:51,  3.05it/s, v_num=3, train_loss_step=nan.0]\n"
            "Epoch 0:   2%|▏| 21/900 [00:03<04:51,  3.05it/s, v_num=3, train_loss_step=-inf.0]\n"
        ),
        [{"epoch": 0.0, "step": 20.0, "loss": NAN}, {"epoch": 0.0, "step": 21.0, "loss": -INF}],
    ),
    (
        "progress bar",
        " Epoch 0:  10%| 20/200 [00:10<01:30, loss=nan]\n",
        [{"epoch": 0.0, "step": 20.0, "loss": NAN}],
    ),
    (
        "progress bar",
        "Epoch 0:   0%|          | 7/? [00:01<?, ?it/s, v_num=0, loss=2.5]\n",
        [{"epoch": 0.0, "step": 7.0, "loss": 2.5}],
    ),
    (
        "progress bar",
        "train loss: nan | test loss: nan | reg: nan : 100%|██████| 20/20 [00:05<00:00,  3.4it/s]\n",
        [{"loss": NAN}],
    ),
    (
        "progress bar",
        "Steps:   1% 100/10000 [00:20<2:00:00,  1.2it/s, loss=nan, lr=1e-5]\n",
        [{"step": 100.0, "loss": NAN, "lr": 1e-05}],
    ),
    (
        "plain",
        (
            "DLL 2020-06-04 01:04:20.355678 - PARAMETER loss_scale : 2.9e-11 \n"
            "DLL 2020-06-04 01:05:20.355678 - Training Epoch: 0 Training Iteration: 2933  average_loss : nan  step_loss : 1.5  learning_rate : 0.003 \n"
            "DLL 2020-06-04 01:06:20.355678 - (1, 50) loss : 2.5  lr : 0.01 \n"
        ),
        [
            {"loss_scale": 2.9e-11},
            {"step": 2933.0, "epoch": 0.0, "loss": NAN, "lr": 0.003},
            {"step": 50.0, "epoch": 1.0, "loss": 2.5, "lr": 0.01},
        ],
    ),
    (
        "json lines",
        'DLLL {"timestamp": "1591.3", "type": "LOG", "step": [2, 50], "data": {"loss": NaN, "lr": 0.001}}\n',
        [{"step": 50.0, "loss": NAN, "lr": 0.001}],
    ),
    ("plain", "losses=[0.0089, nan, nan]\nlosses=[0.5, 0.25]\n", [{"loss": NAN}, {"loss": 0.5}]),
    ("plain", "loss: [tensor(nan, device='cuda:0')]\n", [{"loss": NAN}]),
    (
        "darknet",
        (
            " 40: 12.25, 13.5 avg loss, 0.000000 rate, 5.1 seconds, 64 images\n"
            "41: nan, -nan avg loss, 0.000100 rate, 5.1 seconds, 64 images\n"
        ),
        [{"step": 40.0, "loss": 12.25}, {"step": 41.0, "loss": NAN, "lr": 0.0001}],
    ),
    (
        "darknet",
        "171: nGT 8, recall 0, proposals 0, loss: x 0.5, y 0.4, w 12.1, h 18.9, conf 40.3, cls 2.1, total 74.5\n",
        [{"step": 171.0, "loss": 74.5}],
    ),
    (
        "plain",
        "10.5 loss, 0.000025 LR, 8.83 GB used, 18.70 s\n-nan avg loss\n",
        [{"loss": 10.5, "lr": 2.5e-05}, {"loss": NAN}],
    ),
    ("plain", "iter 5 loss -nan(ind) lr 1.#INF\n", [{"step": 5.0, "loss": NAN, "lr": INF}]),
    (
        "plain",
        "[2018-05-03 12:00:00] Ep. 1 : Up. 1000 : Sen. 64,000 : Cost 10.5 * 56,789 after 1,000 : Time 9.53s\ncost nan\n",
        [{"epoch": 1.0, "step": 1000.0, "loss": 10.5}, {"step": 1000.0, "loss": NAN}],
    ),
    ("plain", "Avg Loss: 6.5, Avg Regression Loss inf, Avg Classification Loss: 5.2\n", [{"loss": 6.5}]),
    ("plain", "Avg Loss is 3.5\n", [{"loss": 3.5}]),
    ("plain", "step 1 - loss nan - moving ave loss nan\n", [{"step": 1.0, "loss": NAN}]),
    ("plain", "2018-04-26 00:50:15  Training   4/500  Loss    nan\n", [{"step": 4.0, "loss": NAN}]),
    (
        "plain",
        "Epoch: [3][   10/ 5004]    LR 0.045000\nIteration 2380, lr = 0.001\nCurrent learning rate: 0.01\nlr=[0.0] mean=-0.000124\n",
        [
            {"epoch": 3.0, "step": 15022.0, "lr": 0.045},
            {"step": 2380.0, "lr": 0.001},
            {"step": 2380.0, "lr": 0.01},
            {"step": 2380.0, "lr": 0.0},
        ],
    ),
    (
        "litgpt",
        "Ep 1 | iter 4 | step 1: loss train (curr): 1.5, val (prev val iter): None | iter time: 181.34 ms (opt.step)\n",
        [{"epoch": 1.0, "step": 4.0, "loss": 1.5}],
    ),
    (
        "table",
        (
            "    clip  exs  gnorm        lr  mean_loss  total_train_updates  tpb  updates\n"
            "       1   22  404.5 1.565e-31      7.5                     22    1       22\n"
        ),
        [{"step": 22.0, "loss": 7.5, "grad_norm": 404.5, "lr": 1.565e-31}],
    ),
    (
        "table",
        "epoch | train_loss | valid_loss | time\n0 | nan | nan | 00:05\n",
        [{"epoch": 0.0, "step": 0.0, "loss": NAN}],
    ),
    (
        "keras",
        "1/100 [..............................] - loss: nan - rpn_class_loss: nan\n",
        [{"step": 1.0, "loss": NAN}],
    ),
    (
        "json",
        '    {\n        "main/loss_ctc": -5.5e+35,\n        "main/loss": -1.5e+35,\n',
        [{"loss": -1.5e35}],
    ),
    (
        "table",
        "| grad_norm | 0.25 |\n| loss      | nan  |\n| step      | 100  |\n",
        [{"grad_norm": 0.25}, {"loss": NAN}],
    ),
    ("table", "│        train_loss         │            nan            │\n", [{"loss": NAN}]),
    ("transformers", "{'losses': [0.1, nan, nan], 'epoch': 1}\n", [{"loss": NAN, "epoch": 1.0}]),
    ("plain", "\t Train loss/train/total: 11.5\n", [{"loss": 11.5}]),
    (
        "plain",
        "Minibatch loss at step 100: nan\nLoss at iteration 200: 1.5\n",
        [{"step": 100.0, "loss": NAN}, {"step": 200.0, "loss": 1.5}],
    ),
    ("loss scaler", "LossTensor is inf or nan\n", [{"loss": NAN}]),
    ("loss scaler", "NaN in loss occurred. Aborting training.\n", [{"loss": NAN}]),
    ("loss scaler", "Batch 12: Invalid loss, terminating training\n", [{"step": 12.0, "loss": NAN}]),
    ("loss scaler", "NanLossDuringTrainingError: NaN loss during training.\n", [{"loss": NAN}]),
    ("loss scaler", "WARNING: received a nan loss, setting loss value to 0\n", [{"loss": NAN}]),
    ("loss scaler", "The training loss went to NaN at step 20\n", [{"step": 20.0, "loss": NAN}]),
    ("loss scaler", "WARNING Grad scale is small: 1.5e-26\n", [{"loss_scale": 1.5e-26}]),
    (
        "loss scaler",
        'Traceback (most recent call last):\n  File "train.py", line 3, in step\nFloatingPointError: Loss became infinite or NaN at iteration=7!\n',
        [{"step": 7.0, "loss": NAN}],
    ),
    ("deepspeed", "[deepspeed] OVERFLOW! Rank 0 Skipping step.\n", [{"skipped": True}]),
]


@pytest.mark.parametrize(("kind", "text", "expected"), POINTS, ids=[f"{i}-{case[0]}" for i, case in enumerate(POINTS)])
def test_lines_of_every_format_become_points(kind: str, text: str, expected: list[dict[str, Any]]) -> None:
    series = series_of(text)[0]
    assert same(points_of(series), expected), points_of(series)
    assert series.kind == kind


def test_three_rows_below_a_heading_are_a_table():
    text = "     pol_surr |   vf_loss |      kl\n" + "    0.95906 |  1.73e+05 | 0.01685\n" * 3
    assert series_of(text)[0].metrics["kl"].values == [0.01685] * 3
    assert not series_of("some words |  of text | 0.1\n" + "    0.95906 |  1.73e+05 | 0.01685\n" * 2)[0].metrics


def test_an_object_that_was_cut_off_keeps_what_came_before():
    line = '{ "epoch": 0.39, "logits/real": -2.5, "logps/real": -633.4, "loss": 5.8769, "rewards/accuracies": 0.9, "rewards/margins": -1.75'
    series = series_of(line + "\n")[0]
    assert [point.loss for point in series.points] == [5.8769]
    assert "rewards/margins" not in series.metrics


def test_a_precision_at_one_without_a_colon_is_a_metric():
    line = "Epoch: [49][20/29]\tTime 2.013 (0.869)\tLoss 5.7096 (5.7113)\tPrec@1 0.781 (0.316)\tPrec@5 2.734 (1.376)\n"
    assert series_of(line)[0].metrics["prec@1"].values == [0.781]
