"""A recipe with questions such as "Which of these is an animal: saw, France or horse?"."""
