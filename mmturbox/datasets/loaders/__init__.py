"""What happens in the workers of a data loader."""

from .workers import complete_worker_init, worker_init

__all__ = ['complete_worker_init', 'worker_init']
