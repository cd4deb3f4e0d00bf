"""Plans that work, of many kinds and frameworks."""

from inspection.files.healthy_configs import CONFIGS
from inspection.files.healthy_famous import FAMOUS
from inspection.files.healthy_fine_tunings import FINE_TUNINGS
from inspection.files.healthy_less_usual import LESS_USUAL
from inspection.files.healthy_scripts import SCRIPTS
from inspection.files.healthy_trainers import TRAINERS

HEALTHY = SCRIPTS | TRAINERS | CONFIGS | FINE_TUNINGS | LESS_USUAL | FAMOUS

COMMANDS = """
python run_glue.py --model_name_or_path bert-base-cased --task_name mrpc --do_train --do_eval --max_seq_length 128 --per_device_train_batch_size 32 --learning_rate 2e-5 --num_train_epochs 3 --output_dir /tmp/mrpc
torchrun --nproc_per_node 8 run_summarization.py --model_name_or_path google-t5/t5-small --do_train --dataset_name cnn_dailymail --dataset_config "3.0.0" --source_prefix "summarize: " --output_dir /tmp/t5 --per_device_train_batch_size=4 --overwrite_output_dir --predict_with_generate
accelerate launch --mixed_precision fp16 --num_processes 2 train_text_to_image.py --pretrained_model_name_or_path CompVis/stable-diffusion-v1-4 --resolution=512 --train_batch_size=1 --gradient_accumulation_steps=4 --gradient_checkpointing --max_train_steps=15000 --learning_rate=1e-05 --max_grad_norm=1 --lr_scheduler="constant" --lr_warmup_steps=0
deepspeed --num_gpus 4 train.py --deepspeed ds_config.json --fp16 --lr 1e-4
fairseq-train data-bin --arch fconv_wmt_en_de --lr 0.5 --clip-norm 0.1 --dropout 0.2 --max-tokens 4000 --optimizer nag
python train.py model=resnet optimizer.lr=0.1 trainer.max_epochs=90 data.batch_size=256
litgpt finetune_lora microsoft/phi-2 --data JSON --train.epochs 3 --train.micro_batch_size 1 --precision bf16-true
python -m torch.distributed.launch --nproc_per_node=8 main.py --model deit_small_patch16_224 --batch-size 256 --lr 5e-4 --warmup-epochs 5 --epochs 300 --clip-grad 1.0
yolo detect train data=coco.yaml model=yolov8n.pt epochs=100 imgsz=640
""".strip().splitlines()  # noqa: E501
"""Launches that work; the scripts are not at hand."""
