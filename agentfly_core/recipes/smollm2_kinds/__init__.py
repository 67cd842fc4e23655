"""Which of three words is an animal, a garment, a tool?"""
